package page

import (
	"strconv"
	"strings"

	"golang.org/x/text/currency"

	"github.com/idempg/idempg/examples/ledger/book"
)

// account is an account as it is shown.
type account struct {
	book.Account
	Decimals int // of the currency's major unit
}

// decimals of a code that no country uses are two, as cents are.
func decimals(code string) int {
	unit, err := currency.ParseISO(code)
	if err != nil {
		return 2
	}
	scale, _ := currency.Standard.Rounding(unit)
	return scale
}

// money writes an amount in the minor unit as one in the major unit, such as
// 2500 with two decimals as "25.00".
func money(minor int64, decimals int) string {
	digits, negative := strings.CutPrefix(strconv.FormatInt(minor, 10), "-")
	digits = strings.Repeat("0", max(0, decimals+1-len(digits))) + digits
	if decimals > 0 {
		digits = digits[:len(digits)-decimals] + "." + digits[len(digits)-decimals:]
	}
	if negative {
		return "−" + digits
	}
	return digits
}
