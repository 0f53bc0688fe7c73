package fibermw

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// object is a JSON object of an API description.
type object = map[string]any

// OpenAPI is an OpenAPI 3.1 document of components that the description of an
// API refers to or takes over, ready for encoding/json:
//
//	parameters  IdempotencyKey       the header of the key
//	headers     IdempotencyReplayed  the marker of replays
//	            IdempotencyRetryAfter
//	schemas     IdempotencyProblem
//	responses   Idempotency400, …    one for each status of a problem
//
// An operation then has {"$ref": "#/components/responses/Idempotency409"}
// under "409".
func (r Rules) OpenAPI() map[string]any {
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "Idempotency", "version": "1", "description": r.Markdown()},
		"components": object{
			"parameters": object{"IdempotencyKey": object{
				"name": r.Key.Header, "in": "header", "required": r.Key.Required, "description": r.Key.Format,
				"schema":  object{"type": "string", "pattern": r.Key.Pattern},
				"example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
			}},
			"headers": object{
				"IdempotencyReplayed": object{
					"description": fmt.Sprintf("%s is there when the answer repeats that of an earlier request.", r.Replay.Header),
					"schema":      object{"type": "string", "const": "true"},
				},
				"IdempotencyRetryAfter": object{
					"description": "Seconds until the same request should be sent again with the same key.",
					"schema":      object{"type": "integer", "minimum": 0},
				},
			},
			"schemas": object{"IdempotencyProblem": object{
				"type": "object", "required": []string{"type", "title", "status", "detail"},
				"properties": object{
					"type":   object{"type": "string", "format": "uri", "description": "A link to the documentation. Match on it."},
					"title":  object{"type": "string"},
					"status": object{"type": "integer"},
					"detail": object{"type": "string"},
				},
			}},
			"responses": r.problemResponses(),
		},
	}
}

// problemResponses has one response for each status, because an operation can
// name only one, with the problems of this status as its examples.
func (r Rules) problemResponses() object {
	responses := object{}
	for _, first := range r.Problems {
		name := fmt.Sprint("Idempotency", first.Status)
		if responses[name] != nil {
			continue
		}
		var titles []string
		examples, headers := object{}, object{}
		for _, p := range r.Problems {
			if p.Status != first.Status {
				continue
			}
			titles = append(titles, p.Title)
			code := p.Type[strings.LastIndexAny(p.Type, "#/")+1:]
			examples[code] = object{"summary": p.Title, "value": object{"type": p.Type, "title": p.Title, "status": p.Status, "detail": p.Detail}}
			if p.RetryAfter > 0 {
				headers[fiber.HeaderRetryAfter] = object{"$ref": "#/components/headers/IdempotencyRetryAfter"}
			}
		}
		responses[name] = object{
			"description": strings.Join(slices.Compact(titles), ", or ") + ".",
			"headers":     headers,
			"content": object{mimeProblem: object{
				"schema":   object{"$ref": "#/components/schemas/IdempotencyProblem"},
				"examples": examples,
			}},
		}
	}
	return responses
}
