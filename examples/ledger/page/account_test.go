package page

import "testing"

func TestMoney(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		minor    int64
		currency string
		want     string
	}{
		{2500, "EUR", "25.00"},
		{5, "EUR", "0.05"},
		{0, "EUR", "0.00"},
		{-2505, "EUR", "−25.05"},
		{2500, "JPY", "2500"},
		{-1, "JPY", "−1"},
		{2500, "KWD", "2.500"},
		{2500, "XYZ", "25.00"}, // nobody's
		{-1 << 53, "EUR", "−90071992547409.92"},
	} {
		if got := money(test.minor, decimals(test.currency)); got != test.want {
			t.Errorf("%d %s is shown as %s, want %s", test.minor, test.currency, got, test.want)
		}
	}
}
