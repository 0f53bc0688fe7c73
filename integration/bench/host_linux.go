package main

import (
	"bufio"
	"os"
	"strings"
	"syscall"
	"time"
)

// napUntil sleeps on a timer of the kernel: Go's own are late by up to a
// millisecond when the program has nothing else to do.
func napUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		request := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&request, nil) // a signal cuts it short: the loop goes on
	}
}

// memoryDir is a directory in memory with room for a data directory, or "".
func memoryDir() string {
	const dir, bytesMin = "/dev/shm", 2 << 30
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil || stat.Bavail*uint64(stat.Bsize) < bytesMin {
		return ""
	}
	return dir
}

// processor is the name of the CPU.
func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "an unknown processor"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown processor"
}

// memoryBytes is the size of the machine's memory.
func memoryBytes() uint64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}

// kernel is the release of the operating system.
func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(release))
}
