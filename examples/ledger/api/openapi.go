package api

import (
	_ "embed"

	"github.com/gofiber/fiber/v2"
)

// OpenAPI describes the service (OpenAPI 3.1, YAML).
//
//go:embed openapi.yaml
var OpenAPI []byte

func getOpenAPI(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, "application/yaml") // RFC 9512
	return c.Send(OpenAPI)
}
