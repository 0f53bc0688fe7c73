package main

// mutant is one fault: the edits that make it, and the tests that must fail.
type mutant struct {
	fault string
	edits []edit
	where string   // the package of the tests
	tests []string // a narrow choice, so that a run is short
}

// edit replaces the one place in file that says old.
type edit struct{ file, old, new string }

const (
	integration = "./integration"
	fibermw     = "./fibermw"
	idem        = "./idem"
)

// mutants are in the order of a request's life.
var mutants = []mutant{
	// The key.
	{
		"the case of keys is folded",
		[]edit{{"idem/request.go", `digest("idempg.key", scope, key)`, `digest("idempg.key", scope, strings.ToLower(key))`}},
		integration,
		[]string{"TestScopesShareNothing"},
	},
	{
		"scope and key are digested without their lengths",
		[]edit{{"idem/request.go", "framed = binary.BigEndian.AppendUint64(framed, uint64(len(p)))", ""}},
		idem,
		[]string{"FuzzKeysAreFramed"},
	},
	{
		"the parts of a fingerprint are digested without their lengths",
		[]edit{{"idem/fingerprint.go", "h.Write(length[:])", ""}},
		idem,
		[]string{"FuzzFingerprintsAreFramed"},
	},

	// The claim.
	{
		"the mutation runs before the claim",
		[]edit{
			{"idem/do.go", "return s.run(ctx, c, s.obtain, s.executing(mutation))", `return s.run(ctx, c, func(ctx context.Context, c *call) (*unit, Result, error) {
				u, result, err := s.obtain(ctx, c)
				if u == nil {
					return u, result, err
				}
				u.release(ctx)
				return s.obtainWithoutKey(ctx, c)
			}, s.executing(mutation))`},
			{"idem/do.go", "if err := s.commit(ctx, u, f); err != nil {", `batch := &pgx.Batch{}
	if u.look.verdict == "" && f != nil {
		c.queueClaim(batch, &u.look)
	}
	if f != nil {
		f.queue(batch)
	}
	err = s.sendCommit(context.WithoutCancel(ctx), u, batch)
	if err != nil && u.look.verdict != "" && u.look.verdict != claimed { // someone was faster
		u.release(ctx)
		rival, result, err := s.obtain(ctx, c)
		if rival != nil {
			rival.release(ctx)
		}
		return result, err
	}
	if err != nil {`},
		},
		integration,
		[]string{"TestEveryInterleavingOfTwoClaims"},
	},
	{
		"the lock of the key is tried before that of the payload",
		[]edit{{
			"idem/sql.go", `        when not pg_try_advisory_xact_lock(%s) then 'in_flight'
        when not pg_try_advisory_xact_lock(%s) then 'reused_in_flight'`,
			`        when not pg_try_advisory_xact_lock(%[2]s) then 'reused_in_flight'
        when not pg_try_advisory_xact_lock(%[1]s) then 'in_flight'`,
		}},
		integration,
		[]string{"TestAnotherPayloadInFlightIsReusedNotInFlight"},
	},
	{
		"a record is replayed whatever is asked for",
		[]edit{{"idem/claim.go", "case record.Operation != c.request.Operation || record.Fingerprint != c.request.Fingerprint:", "case false:"}},
		integration,
		[]string{"TestAKeyAnswersOnlyTheRequestItWasUsedFor"},
	},
	{
		"a claim that was lost to a rival is not looked at again",
		[]edit{{"idem/claim.go", "case free:\n\t\treturn Result{}, errLookAgain", "case free:\n\t\treturn Result{}, ErrInFlight"}},
		integration,
		[]string{"TestAClaimWithAnOldSnapshotFindsTheRecord"},
	},
	{
		"a key is called reused after one look",
		[]edit{{
			"idem/claim.go", "errors.Is(err, errLookAgain) || errors.Is(err, errReusedInFlight) && !errors.Is(previous, errReusedInFlight)",
			"errors.Is(err, errLookAgain) && !errors.Is(previous, errReusedInFlight)",
		}},
		integration,
		[]string{"TestAClaimWithAnOldSnapshotFindsTheRecord"},
	},
	{
		"whoever holds the lock of the payload is taken for the owner",
		[]edit{{"idem/claim.go", "return Result{}, c.judgeHolder(ctx, tx)", "return Result{}, ErrInFlight"}},
		integration,
		[]string{"TestAPayloadBeingRefusedIsNotInFlight"},
	},
	{
		"a key inside itself is not noticed",
		[]edit{
			{"idem/call.go", "return c, ErrReentrant", "continue"},
			{"idem/sql.go", "when found.unfinished is not null then 'reentrant'\n        when", "when"},
		},
		integration,
		[]string{"TestAKeyInsideItselfIsRefused"},
	},
	{
		"an expired record still answers",
		[]edit{{"idem/sql.go", "when found.expires_at > statement_timestamp() then 'recorded'", "when found.id is not null then 'recorded'"}},
		integration,
		[]string{"TestAnExpiredRecordIsTakenOver"},
	},
	{
		"an expired record is taken over by two",
		[]edit{{"idem/sql.go", "where id = $1::uuid and expires_at <= statement_timestamp()\nreturning", "where id = $1::uuid\nreturning"}},
		integration,
		[]string{"TestAClaimWithAnOldSnapshotFindsTheRecord"},
	},
	{
		"waiting duplicates do not share a connection",
		[]edit{
			{"idem/wait.go", "if f := s.lead(c); f != c.flight && waits {", "if f := s.lead(c); f == nil && waits {"},
			{"idem/claim.go", "	if s.flights.isOwnedHere(c) {\n		return nil, Result{}, ErrInFlight\n	}\n", ""},
			{"idem/claim.go", "if s.flights.isOwnedHere(c) { // by now", "if false { // by now"},
		},
		integration,
		[]string{"TestWaitingDuplicatesShareOneConnection"},
	},

	// The replay cache.
	{
		"a cached record is replayed whatever is asked for",
		[]edit{{"idem/replay_cache.go", "if r.operation != request.Operation || r.fingerprint != request.Fingerprint {", "if false {"}},
		integration,
		[]string{"TestACachedReplayNeedsNoDatabase"},
	},
	{
		"a cached record outlives its expiry",
		[]edit{{
			"idem/replay_cache.go", "r.scope == request.Scope && r.key == request.Key &&\n\t\tnow.Before(r.deadline) && now.Round(0).Before(r.deadline.Round(0))",
			"r.scope == request.Scope && r.key == request.Key",
		}},
		integration,
		[]string{"TestACachedReplayExpiresWithTheRecord"},
	},
	{
		"the life of a cached record is counted from the end of the call",
		[]edit{{"idem/replay_cache.go", "return c.sent.Add(left - left/1000), left > 0", "return time.Now().Add(expiresAt.Sub(c.database)), left > 0"}},
		idem,
		[]string{"TestACachedReplayEndsBeforeTheRecord"},
	},
	{
		"what may not be committed is cached",
		[]edit{{"idem/replay_cache.go", "ok && err == nil {", "ok {"}},
		integration,
		[]string{"TestOnlyCommittedRecordsAreCached"},
	},
	{
		"two databases share their cached records",
		[]edit{{"idem/replay_cache.go", "ReplayKey{pool: s.pool, id: c.id}", "ReplayKey{id: c.id}"}},
		integration,
		[]string{"TestStoresMayShareACache"},
	},
	{
		"a cached body is lent to its readers",
		[]edit{{"idem/replay_cache.go", "result.Body = bytes.Clone(r.result.Body)", ""}},
		idem,
		[]string{"TestACachedReplaySharesNoMemory"},
	},

	// The lent transaction.
	{
		"the lent transaction is not taken back",
		[]edit{{"idem/tx.go", "l.returned = true", ""}},
		integration,
		[]string{"TestAKeptTransactionCannotWriteIntoTheNextUnit"},
	},
	{
		"a mutation that asked for ROLLBACK can succeed",
		[]edit{{"idem/do.go", "case lent.loan.rolledBack:", "case false:"}},
		integration,
		[]string{"TestAMutationCannotEndTheTransactionItself"},
	},
	{
		"a transaction that was aborted counts as committed",
		[]edit{
			{"idem/do.go", "case status == 'E':", "case false:"},
			{"idem/commit.go", `return tag.String() == "COMMIT"`, `return tag.String() != ""`},
		},
		integration,
		[]string{"TestASwallowedSQLErrorWithoutAKeyIsNoSuccess"},
	},
	{
		"a transaction without its claim can be finished",
		[]edit{{"idem/sql.go", `select case count(*) when 1 then min(finished_at)
    else ('this transaction holds no claim: ' || count(*)::text)::timestamptz end`, "select coalesce(min(finished_at), now())"}},
		integration,
		[]string{"TestAMutationCannotEndTheTransactionItself"},
	},
	{
		"a claim without an outcome can commit",
		[]edit{{"migrations/sql/00001_idem.sql", `    constraint records_a_claim_without_an_outcome_cannot_commit
        foreign key (unfinished) references idem.unfinished (claim)
        deferrable initially deferred,
`, ""}},
		integration,
		[]string{"TestAMutationCannotEndTheTransactionItself"},
	},
	{
		"a frozen owner keeps the key",
		[]edit{{"idem/claim.go", `{"idle_in_transaction_session_timeout", config.IdleInTransactionTimeout, false},`, ""}},
		integration,
		[]string{"TestTimeoutsAreSetForTheTransactionAlone"},
	},
	{
		"a serialization failure is not run again",
		[]edit{{"idem/postgres.go", `case "40001", "40P01": //`, `case "40P01": //`}},
		integration,
		[]string{"TestASerializationFailureRunsTheUnitAgain"},
	},

	// The batch.
	{
		"the pipeline of a batch goes on without its claim",
		[]edit{{"idem/sql.go", `then true else ('idem.' || verdict)::boolean end`, `then true else false end`}},
		integration,
		[]string{"TestABurstOfOneBatchRunsOnce", "TestBothEntrancesAnswerEachOther"},
	},
	{
		"one of several rows is recorded",
		[]edit{{"idem/sql.go", "when rows.n <> 1 then", "when rows.n < 1 then"}},
		integration,
		[]string{"TestWhatABatchCannotRespond"},
	},
	{
		"a batch that begins a transaction counts as committed",
		[]edit{{"idem/commit.go", "return u.conn.Conn().PgConn().TxStatus() == 'I'", "return true"}},
		integration,
		[]string{"TestABatchCannotEndTheTransactionItself"},
	},
	{
		"a batch without an answer is not settled",
		[]edit{{"idem/commit.go", "return &unsettledError{cause: err}", "return err"}},
		integration,
		[]string{"TestAnUnansweredBatchIsSettled"},
	},

	// The endings.
	{
		"a rejection keeps the writes",
		[]edit{{"idem/do.go", "return s.reject(ctx, c, u, rejected.response)", "return s.complete(ctx, c, u, StateRejected, rejected.response)"}},
		integration,
		[]string{"TestARejectionUndoesTheWritesAndKeepsTheAnswer"},
	},
	{
		"the record is written in a second transaction",
		[]edit{{"idem/do.go", "if err := s.commit(ctx, u, f); err != nil {", `if f != nil && state == StateCompleted {
		effect := &pgx.Batch{}
		effect.Queue("delete from idem.records where id = $1", c.id.recordID())
		if err := s.sendCommit(ctx, u, effect); err != nil {
			return Result{}, c.commitError(err)
		}
		record := s.begin.batch()
		c.queueClaim(record, &u.look)
		if err := u.send(ctx, record).Close(); err != nil {
			return Result{}, err
		}
	}
	if err := s.commit(ctx, u, f); err != nil {`}},
		integration,
		[]string{"TestNoRecordNoEffect"},
	},
	{
		"COMMIT ends with the caller's context",
		[]edit{{
			"idem/commit.go", "ctx, cancel := detach(ctx, s.config.CommitTimeout)",
			"ctx, cancel := context.WithTimeout(ctx, s.config.CommitTimeout)",
		}},
		integration,
		[]string{"TestACallerThatHangsUp"},
	},
	{
		"a COMMIT without an answer is sent again",
		[]edit{{"idem/commit.go", "return &unsettledError{cause: err}", `retried, _ := s.pool.Exec(context.WithoutCancel(ctx), "commit")
		if retried.String() == "COMMIT" {
			return nil
		}
		return &unsettledError{cause: err}`}},
		integration,
		[]string{"TestAnUnansweredCommitIsSettled"},
	},
	{
		"a COMMIT without an answer is not settled",
		[]edit{{"idem/wait.go", "if c.unsettled != nil {", "if false {"}},
		integration,
		[]string{"TestAnUnansweredCommitIsSettled"},
	},
	{
		"a first answer that was settled is marked as a replay",
		[]edit{{"idem/commit.go", "result.Replayed = c.replayedClaim != c.claimedAt", "result.Replayed = true"}},
		integration,
		[]string{"TestAnUnansweredCommitIsSettled"},
	},
	{
		"a cancelled wait for the standby counts as done",
		[]edit{{"idem/commit.go", "case noticed:", "case false && noticed:"}},
		integration,
		[]string{"TestACancelledWaitForTheStandbyIsUnknown"},
	},
	{
		"a sweep forgets records that are alive",
		[]edit{{"idem/sql.go", " and expires_at <= statement_timestamp() and unfinished is null", " and unfinished is null"}},
		integration,
		[]string{"TestSweepForgetsWhatHasExpired"},
	},
	{
		"a batch of a sweep begins where the first one began",
		[]edit{{"idem/sql.go", "where expires_at >= $2::timestamptz and", "where"}},
		integration,
		[]string{"TestASweepBesideAnOldSnapshotReadsEachRecordOnce"},
	},

	// Fiber.
	{
		"the body of an answer is not copied out of Fiber's buffer",
		[]edit{{"fibermw/response.go", "bytes.Clone(response.Body())", `bytes.Trim(response.Body(), "")`}},
		integration,
		[]string{"TestFiberAResultIsACopy"},
	},
	{
		"the headers of a replay are added to what is there",
		[]edit{{"fibermw/response.go", "header.Del(name)", "_ = name"}},
		fibermw,
		[]string{"TestAReplayReplacesHeadersAndIsMarked"},
	},
	{
		"cookies are stored",
		[]edit{{"fibermw/response.go", "if !cfg.StoreSetCookie {", "if false {"}},
		integration,
		[]string{"TestFiberCookiesAreStoredOnlyOnRequest"},
	},
	{
		"a 201 that was rendered is served although nothing was committed",
		[]edit{{"fibermw/unit.go", "	u.before.restore(u.c)\n\n	var status *fiber.Error", "	var status *fiber.Error"}},
		integration,
		[]string{"TestFiberARendered201IsWipedWhenNothingWasCommitted"},
	},
}
