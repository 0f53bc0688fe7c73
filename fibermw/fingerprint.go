package fibermw

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/gowebpki/jcs"

	"github.com/idempg/idempg/idem"
)

// DefaultFingerprint digests method, path, raw query, content type and the body
// as it was sent, before Content-Encoding is undone. Two bodies that differ in
// a single space are two requests.
//
// A multipart form is digested by what it holds, since its boundary changes
// with every attempt, and Fiber's server keeps no raw body of it.
func DefaultFingerprint(c *fiber.Ctx) (idem.Fingerprint, error) {
	request := c.Request()
	if isMultipart(c) && len(request.Header.ContentEncoding()) == 0 {
		if form, err := c.MultipartForm(); err == nil {
			content, err := formParts(form)
			return fingerprint(c, []byte(fiber.MIMEMultipartForm), content...), err
		}
	}
	return fingerprint(c, request.Header.ContentType(), request.Body()), nil
}

// CanonicalJSONFingerprint is DefaultFingerprint for clients that serialize
// anew for each attempt: a JSON body counts by its canonical form (RFC 8785),
// so spaces and the order of members do not matter. Other bodies, and JSON that
// has no canonical form, count as they are.
//
// The canonical form has the numbers of JavaScript: integers beyond 2^53 that
// differ by one can be the same. Send large amounts as strings.
func CanonicalJSONFingerprint(c *fiber.Ctx) (idem.Fingerprint, error) {
	body := c.Request().Body()
	contentType := c.Request().Header.ContentType()
	mediaType, _, _ := bytes.Cut(bytes.ToLower(contentType), []byte(";"))
	mediaType = bytes.TrimSpace(mediaType)
	if !bytes.HasSuffix(mediaType, []byte("/json")) && !bytes.HasSuffix(mediaType, []byte("+json")) {
		return DefaultFingerprint(c)
	}
	if canonical, err := jcs.Transform(body); err == nil {
		body = canonical
	}
	return fingerprint(c, contentType, body), nil
}

// fingerprint digests content together with where it was sent to.
func fingerprint(c *fiber.Ctx, contentType []byte, content ...[]byte) idem.Fingerprint {
	uri := c.Request().URI()
	parts := [][]byte{[]byte(c.Method()), uri.PathOriginal(), uri.QueryString(), contentType}
	return idem.NewFingerprint(append(parts, content...)...)
}

func isMultipart(c *fiber.Ctx) bool {
	return strings.HasPrefix(strings.ToLower(string(c.Request().Header.ContentType())), fiber.MIMEMultipartForm)
}

// formParts lists what a form holds, in an order that does not depend on the
// map it is kept in. Counts keep one list from running into the next.
func formParts(form *multipart.Form) ([][]byte, error) {
	var parts [][]byte
	add := func(texts ...string) {
		for _, text := range texts {
			parts = append(parts, []byte(text))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form.Value)) {
		values := form.Value[name]
		add("values", name, strconv.Itoa(len(values)))
		add(values...)
	}
	for _, name := range slices.Sorted(maps.Keys(form.File)) {
		files := form.File[name]
		add("files", name, strconv.Itoa(len(files)))
		for _, file := range files {
			digest, err := fileDigest(file)
			if err != nil {
				return nil, err
			}
			add(file.Filename, file.Header.Get(fiber.HeaderContentType))
			parts = append(parts, digest)
		}
	}
	return parts, nil
}

func fileDigest(file *multipart.FileHeader) ([]byte, error) {
	content, err := file.Open()
	if err != nil {
		return nil, fmt.Errorf("fibermw: open an uploaded file: %w", err)
	}
	defer func() { _ = content.Close() }() // it was only read
	digest := sha256.New()
	if _, err := io.Copy(digest, content); err != nil {
		return nil, fmt.Errorf("fibermw: read an uploaded file: %w", err)
	}
	return digest.Sum(nil), nil
}

// readBody reads the body that an app with StreamRequestBody has not read yet.
// fasthttp would put the text of an error in the place of a body that was cut
// off, and a record would freeze that.
func readBody(c *fiber.Ctx) error {
	request := c.Request()
	if !request.IsBodyStream() {
		return nil
	}
	limit := c.App().Config().BodyLimit
	body, err := io.ReadAll(io.LimitReader(request.BodyStream(), int64(limit)+1))
	switch {
	case err != nil:
		return fiber.NewError(fiber.StatusBadRequest, "the request body is incomplete")
	case len(body) > limit:
		return fiber.ErrRequestEntityTooLarge
	}
	request.SetBodyRaw(body)
	return nil
}
