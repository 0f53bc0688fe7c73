package api

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gofiber/fiber/v2"
)

var (
	errUnauthorized = errors.New("unauthorized")

	apiKeyPattern = regexp.MustCompile(`^[!-~]{1,255}$`)
	tenantPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// Keys maps the digest of a key to its tenant. Looking up a digest tells
// nothing about the key by the time it takes.
type Keys map[[sha256.Size]byte]string

func (k Keys) add(key, tenant string) { k[sha256.Sum256([]byte(key))] = tenant }

// Has tells whether key is known.
func (k Keys) Has(key string) bool {
	_, known := k[sha256.Sum256([]byte(key))]
	return known
}

// authenticate finds out whose request it is.
func (k Keys) authenticate(c *fiber.Ctx) error {
	scheme, key, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	tenant, known := k[sha256.Sum256([]byte(key))]
	if !known || !strings.EqualFold(scheme, "Bearer") {
		c.Set(fiber.HeaderWWWAuthenticate, `Bearer realm="ledger"`)
		return fmt.Errorf("%w: send a known API key as a Bearer token", errUnauthorized)
	}
	c.Locals(tenantLocal{}, tenant)
	return c.Next()
}

// ParseKeys reads "key:tenant,key:tenant". Its errors name an entry by
// number: keys are secrets.
func ParseKeys(list string) (keys Keys, firstTenant string, err error) {
	if strings.TrimSpace(list) == "" {
		return nil, "", errors.New(`is empty: write "key:tenant,key:tenant", or unset it for the demo keys`)
	}
	keys = Keys{}
	for i, entry := range strings.Split(list, ",") {
		entry = strings.TrimSpace(entry)
		colon := strings.LastIndexByte(entry, ':')
		if colon < 0 {
			return nil, "", fmt.Errorf(`entry %d is not "key:tenant"`, i+1)
		}
		key, tenant := entry[:colon], entry[colon+1:]
		switch {
		case !apiKeyPattern.MatchString(key):
			return nil, "", fmt.Errorf("the key of entry %d must be 1 to 255 visible ASCII characters", i+1)
		case !tenantPattern.MatchString(tenant):
			return nil, "", fmt.Errorf("the tenant of entry %d must be 1 to 64 of A-Z a-z 0-9 _ . -", i+1)
		case keys.Has(key):
			return nil, "", fmt.Errorf("the key of entry %d is there twice", i+1)
		}
		keys.add(key, tenant)
		if firstTenant == "" {
			firstTenant = tenant
		}
	}
	return keys, firstTenant, nil
}

type tenantLocal struct{}

// tenantOf returns the tenant that was authenticated, or "".
func tenantOf(c *fiber.Ctx) string {
	tenant, _ := c.Locals(tenantLocal{}).(string)
	return tenant
}

// tenantScope makes the tenant the scope of idempotency keys. It stays the same
// when an API key is replaced, so a retry under the new key is still a retry.
func tenantScope(c *fiber.Ctx) (string, error) { return tenantOf(c), nil }
