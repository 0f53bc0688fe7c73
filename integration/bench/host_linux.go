package main

import (
	"bufio"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes one goroutine at a time to the microsecond. Go's own timers can be a
// millisecond late when the program has nothing else to do, and a thread that sleeps
// keeps a processor from the other goroutines.
type alarm struct {
	fd   int
	file *os.File // the same, in the hands of Go's poller
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "alarm")}, nil
}

func (a *alarm) sleepUntil(due time.Time) error {
	left := time.Until(due)
	if left <= 0 {
		return nil
	}
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}
	if err := unix.TimerfdSettime(a.fd, 0, &once, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	var expirations [8]byte
	_, err := a.file.Read(expirations[:])
	return err
}

func (a *alarm) close() error { return a.file.Close() }

// memoryDir is a directory in memory with room for a data directory, or "".
func memoryDir() string {
	const dir, bytesMin = "/dev/shm", 2 << 30
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil || stat.Bavail*uint64(stat.Bsize) < bytesMin {
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
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
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
