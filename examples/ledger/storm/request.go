package storm

import (
	"encoding/json"
	"maps"
	"slices"
)

// requestOf is the path and the body of a request for an order, or for the
// orders of a list.
func requestOf(orders []*remembered) (path string, body []byte) {
	switch r := orders[0]; r.action {
	case inList:
		items := make([]map[string]any, len(orders))
		for i, r := range orders {
			items[i] = r.transferBody()
			items[i]["key"] = r.key
		}
		return "/v1/transfers/bulk", encode(map[string]any{"transfers": items})
	case hold:
		return "/v1/holds", encode(map[string]any{
			"from": r.from, "to": r.to, "amount": r.amount, "currency": currency, "expires_in": holdSeconds,
		})
	case capture:
		return "/v1/holds/" + r.base.told().ID.String() + "/capture", encode(map[string]any{"amount": r.amount})
	case void:
		return "/v1/holds/" + r.base.told().ID.String() + "/void", encode(map[string]any{})
	case reverse:
		return "/v1/transfers/" + r.base.told().ID.String() + "/reverse", encode(map[string]any{"reference": r.key})
	case linked:
		return "/v1/transfers/linked", encode(map[string]any{"legs": r.linkedLegs(), "reference": r.key})
	default:
		return "/v1/transfers", encode(r.transferBody())
	}
}

// transferBody has the key for a reference, by which the audit finds the effect.
func (o order) transferBody() map[string]any {
	return map[string]any{"from": o.from, "to": o.to, "amount": o.amount, "currency": currency, "reference": o.key}
}

// linkedLegs are in an order that stays: the body must be the same each time.
func (o order) linkedLegs() []map[string]any {
	var legs []map[string]any
	for _, account := range slices.Sorted(maps.Keys(o.legs)) {
		legs = append(legs, map[string]any{"account": account, "amount": o.legs[account], "currency": currency})
	}
	return legs
}

func encode(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts and numbers
	}
	return encoded
}
