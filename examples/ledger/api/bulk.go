package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/postgres"
	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// The limits of a list.
const (
	BulkItemsMax     = 1000
	BulkBodyBytesMax = 6 << 20 // BulkItemsMax items whose fields are all as long as they may be
	bulkItemsAtOnce  = 100     // in one transaction, which holds their accounts for as long
)

const bulkOperation = "POST /v1/transfers/bulk"

// bulk carries out a list of transfers, each once per key of its own.
type bulk struct {
	store    *idem.Store
	outboxes Outboxes
	problems []fibermw.ProblemRules // those of the library
}

func newBulk(store *idem.Store, outboxes Outboxes) *bulk {
	rules := fibermw.RulesOf(fibermw.Config{Store: store, Scope: tenantScope})
	return &bulk{store, outboxes, rules.Problems}
}

// bulkItem is a transfer of the list, or what is wrong with it.
type bulkItem struct {
	key      *string // nil when it has none that is valid
	transfer book.NewTransfer
	err      error
}

// BulkResult answers an item of a list, as POST /v1/transfers would have.
type BulkResult struct {
	Key      *string         `json:"key"`
	Status   int             `json:"status"`
	Replayed bool            `json:"replayed"`
	Body     json.RawMessage `json:"body"`
}

// post answers each transfer by itself. An invalid one is not recorded: it has
// done nothing, and its key is as good as new.
func (b *bulk) post(c *fiber.Ctx) error {
	items, err := readBulk(c.Body())
	if err != nil {
		return err
	}
	results := make([]BulkResult, len(items))
	var valid []int
	for i, item := range items {
		results[i].Key = item.key
		if item.err == nil {
			valid = append(valid, i)
			continue
		}
		results[i].fail(problemOf(item.err))
	}
	for chunk := range slices.Chunk(valid, bulkItemsAtOnce) {
		if err := b.run(c.UserContext(), tenantOf(c), items, chunk, results); err != nil {
			return err
		}
	}
	return c.JSON(fiber.Map{"results": results})
}

// readBulk reads the list. Its error is about the request as a whole.
func readBulk(raw []byte) ([]bulkItem, error) {
	body := readObject(raw, BulkBodyBytesMax, 1)
	list := body.list("transfers")
	if len(list) < 1 || len(list) > BulkItemsMax {
		body.fail("transfers", fmt.Sprintf("must have 1 to %d items", BulkItemsMax))
	}
	if err := body.end(); err != nil {
		return nil, err
	}
	items := make([]bulkItem, len(list))
	for i, raw := range list {
		items[i] = readBulkItem(fmt.Sprintf("transfers[%d]", i), raw)
	}
	return items, nil
}

func readBulkItem(name string, raw json.RawMessage) bulkItem {
	body := readItem(name, raw)
	if body.err != nil {
		return bulkItem{err: body.err}
	}
	key := body.optionalText("key")
	if key == nil || !validKey(*key) {
		body.fail("key", fmt.Sprintf("must be a string of 1 to %d visible ASCII characters", idem.KeyBytesMax))
		key = nil
	}
	transfer := takeTransfer(body)
	err := body.end()
	if err == nil {
		err = body.located(transfer.Validate())
	}
	return bulkItem{key, transfer, err}
}

// validKey has the rule of the header Idempotency-Key.
func validKey(key string) bool {
	return key != "" && len(key) <= idem.KeyBytesMax &&
		!strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// run carries out the items of a chunk in one transaction. All their accounts
// are locked first, for two lists with the same accounts in different orders
// would deadlock.
func (b *bulk) run(ctx context.Context, tenant string, items []bulkItem, chunk []int, results []BulkResult) error {
	locks := postgres.LockAccountsOnceParams{Tenant: tenant, LockID: uuid.NewString()}
	for _, i := range chunk {
		locks.Ids = append(locks.Ids, items[i].transfer.From, items[i].transfer.To)
	}
	slices.Sort(locks.Ids)
	locks.Ids = slices.Compact(locks.Ids)

	keyed := make([]idem.Item, len(chunk))
	for n, i := range chunk {
		transfer := items[i].transfer
		canonical, err := transfer.Canonical()
		if err != nil {
			return err
		}
		batch, err := TransferBatch(ctx, b.outboxes, tenant, transfer, locks)
		if err != nil {
			return err
		}
		keyed[n] = idem.Item{Batch: batch, Request: idem.Request{
			Scope: tenant, Operation: bulkOperation, Key: *items[i].key, Fingerprint: idem.NewFingerprint(canonical),
		}}
	}
	answers, err := b.store.DoMany(ctx, keyed, idem.ManyOptions{ChunkItemsMax: bulkItemsAtOnce})
	var failed []error
	for n, answer := range answers {
		result := &results[chunk[n]]
		if answer.Err == nil {
			result.Status, result.Replayed, result.Body = answer.Result.Status, answer.Result.Replayed, answer.Result.Body
			continue
		}
		result.fail(b.problemOf(answer.Err))
		if result.Status >= http.StatusInternalServerError {
			failed = append(failed, answer.Err)
		}
	}
	if len(failed) > 0 { // most often all for the same reason
		slog.ErrorContext(ctx, "bulk transfers failed", "items", len(failed), "first_error", failed[0])
	}
	return err
}

func (r *BulkResult) fail(p Problem) { r.Status, r.Body = p.Status, p.json() }

// problemOf is the problem that fibermw would answer to the error of a call.
func (b *bulk) problemOf(err error) Problem {
	var outcomeUnknown *idem.OutcomeUnknownError
	code := fibermw.CodeInternal
	switch {
	case errors.As(err, &outcomeUnknown):
		code = fibermw.CodeOutcomeUnknown
	case errors.Is(err, idem.ErrInFlight):
		code = fibermw.CodeInFlight
	case errors.Is(err, idem.ErrKeyReused):
		code = fibermw.CodeKeyReused
	case idem.Retryable(err), errors.Is(err, context.DeadlineExceeded): // of the list: the item was not begun
		code = fibermw.CodeDatabaseUnavailable
	}
	rules := b.problems[slices.IndexFunc(b.problems, func(p fibermw.ProblemRules) bool { return strings.HasSuffix(p.Type, "#"+code) })]
	return Problem{Type: rules.Type, Title: rules.Title, Status: rules.Status, Detail: rules.Detail}
}
