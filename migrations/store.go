package migrations

import (
	"context"
	"fmt"

	"github.com/pressly/goose/v3/database"
)

const versionTable = "idem.goose_db_version"

// Not "create schema if not exists": that needs CREATE on the database even
// where the schema exists, and an administrator may have made it for this role.
const createSchemaSQL = `do $$
begin
    if to_regnamespace('idem') is null then
        create schema idem;
    end if;
end
$$`

// store is goose's own Postgres store, for a version table in a schema that
// may not exist yet. Embedding the extended interface keeps TableExists, with
// which goose looks before it creates.
type store struct {
	database.StoreExtender
}

func newStore() (*store, error) {
	inner, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return nil, err
	}
	extended, ok := inner.(database.StoreExtender)
	if !ok {
		return nil, fmt.Errorf("goose's Postgres store %T is no database.StoreExtender", inner)
	}
	return &store{extended}, nil
}

// CreateVersionTable creates the schema and the version table.
func (s *store) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	if _, err := db.ExecContext(ctx, createSchemaSQL); err != nil {
		return fmt.Errorf("create schema idem: %w", err)
	}
	return s.StoreExtender.CreateVersionTable(ctx, db)
}
