package book

import "github.com/google/uuid"

// The limits of a page of a list.
const (
	PageItemsMax     = 1000
	PageItemsDefault = 100
)

// Page asks for a part of a list.
type Page struct {
	Items  int    // how many, from 1 to PageItemsMax
	Cursor string // where the page before ended; "": the first page
}

// rows is one row more than the page has, which tells whether there is another.
func (p Page) rows() int32 { return int32(p.Items) + 1 }

// uuid is the cursor of a list in the order of falling ids.
func (p Page) uuid() (uuid.UUID, error) {
	if p.Cursor == "" {
		return uuid.Max, nil
	}
	id, err := uuid.Parse(p.Cursor)
	if err != nil {
		return uuid.UUID{}, errCursor
	}
	return id, nil
}

var errCursor = Invalid("cursor", "must be the next_cursor of the page before")

// cut returns the items of the page, and the cursor of the next one if there is
// one.
func cut[T any](page Page, items []T, cursor func(T) string) ([]T, *string) {
	if len(items) <= page.Items {
		return items, nil
	}
	items = items[:page.Items]
	next := cursor(items[page.Items-1])
	return items, &next
}
