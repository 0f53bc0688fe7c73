package integration

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// sqlstate is the SQLSTATE in err's chain, or "".
func sqlstate(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}
