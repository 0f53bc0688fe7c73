//go:build !linux

package main

import (
	"runtime"
	"time"
)

func napUntil(due time.Time) { time.Sleep(time.Until(due)) }

func memoryDir() string { return "" }

func processor() string { return runtime.GOARCH }

func memoryBytes() uint64 { return 0 }

func kernel() string { return runtime.GOOS }
