//go:build !linux

package main

import (
	"runtime"
	"time"
)

// alarm is as exact as Go's timers are here.
type alarm struct{}

func newAlarm() (*alarm, error) { return new(alarm), nil }

func (*alarm) sleepUntil(due time.Time) error {
	time.Sleep(time.Until(due))
	return nil
}

func (*alarm) close() error { return nil }

func memoryDir() string { return "" }

func processor() string { return runtime.GOARCH }

func memoryBytes() uint64 { return 0 }

func kernel() string { return runtime.GOOS }
