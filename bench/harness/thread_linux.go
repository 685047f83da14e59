package harness

import (
	"syscall"
	"time"
)

// ThreadTime returns the processor time that the calling thread has used. Who measures with
// it has called runtime.LockOSThread.
func ThreadTime() time.Duration {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_THREAD, &ru) != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
