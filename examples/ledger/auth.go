package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v2"
)

var errUnauthorized = errors.New("unauthorized")

// apiKeys maps the digest of a key to its tenant. Looking up a digest tells
// nothing about the key by the time it takes.
type apiKeys map[[sha256.Size]byte]string

func (k apiKeys) add(key, tenant string) { k[sha256.Sum256([]byte(key))] = tenant }

func (k apiKeys) has(key string) bool {
	_, known := k[sha256.Sum256([]byte(key))]
	return known
}

// authenticate finds out whose request it is.
func (k apiKeys) authenticate(c *fiber.Ctx) error {
	scheme, key, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	tenant, known := k[sha256.Sum256([]byte(key))]
	if !known || !strings.EqualFold(scheme, "Bearer") {
		c.Set(fiber.HeaderWWWAuthenticate, `Bearer realm="ledger"`)
		return fmt.Errorf("%w: send a known API key as a Bearer token", errUnauthorized)
	}
	c.Locals(tenantLocal{}, tenant)
	return c.Next()
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
