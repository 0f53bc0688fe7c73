package provider

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// RefusedDestination begins every destination that the fake refuses.
const RefusedDestination = "refuse"

// Fake is a provider in memory, a net/http handler: POST /charges makes a charge
// once per Idempotency-Key, GET /charges lists them.
type Fake struct {
	lost float64

	mu      sync.Mutex
	charges map[string]*FakeCharge
	order   []*FakeCharge
}

// FakeCharge is what became of a key.
type FakeCharge struct {
	Charge
	ID       string `json:"id"`
	Key      string `json:"key"`
	Refused  bool   `json:"refused"`
	Attempts int    `json:"attempts"` // calls with the key
}

// NewFake returns a provider that makes a charge but loses its answer in a share
// of first attempts, from 0 to 1: the connection is cut, so that the caller
// cannot know.
func NewFake(lost float64) *Fake {
	return &Fake{lost: lost, charges: map[string]*FakeCharge{}}
}

// Charges returns what became of the keys so far, in the order of their first
// attempts.
func (f *Fake) Charges() []FakeCharge {
	f.mu.Lock()
	defer f.mu.Unlock()
	charges := make([]FakeCharge, len(f.order))
	for i, charge := range f.order {
		charges[i] = *charge
	}
	return charges
}

// ServeHTTP answers 201 with the id of the charge, 402 with the reason of a
// refusal, 400, or 422 for a key that made another charge.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/charges" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodGet:
		answer(w, http.StatusOK, f.Charges())
	case http.MethodPost:
		f.post(w, r)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (f *Fake) post(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	var asked Charge
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, answerBytesMax)).Decode(&asked)
	if err != nil || key == "" || asked.Amount < 1 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	charge := f.charge(key, asked)
	switch {
	case !sameCharge(charge.Charge, asked):
		w.WriteHeader(http.StatusUnprocessableEntity)
	case charge.Attempts == 1 && rand.Float64() < f.lost:
		panic(http.ErrAbortHandler)
	case charge.Refused:
		answer(w, http.StatusPaymentRequired, RefusedError{Reason: "the destination takes no money"})
	default:
		answer(w, http.StatusCreated, Paid{ID: charge.ID})
	}
}

// charge makes the charge of key, or finds it.
func (f *Fake) charge(key string, asked Charge) FakeCharge {
	f.mu.Lock()
	defer f.mu.Unlock()
	charge, known := f.charges[key]
	if !known {
		charge = &FakeCharge{
			Charge: asked, ID: "ch_" + uuid.NewString(), Key: key,
			Refused: strings.HasPrefix(asked.Destination, RefusedDestination),
		}
		f.charges[key] = charge
		f.order = append(f.order, charge)
	}
	charge.Attempts++
	return *charge
}

func sameCharge(a, b Charge) bool {
	text := func(reference *string) string {
		if reference == nil {
			return ""
		}
		return *reference
	}
	return a.Amount == b.Amount && a.Currency == b.Currency && a.Destination == b.Destination && text(a.Reference) == text(b.Reference)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever is gone need not be told
}
