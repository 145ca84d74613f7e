package link

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// In calls fn on a thread in the network namespace at path. fn must not start goroutines that need the namespace.
func In(path string, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Without an unlock the thread ends with the goroutine, and its namespace with it.
		runtime.LockOSThread()
		back, err := enter(path)
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		err = fn()
		if back() == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// enter moves the calling thread to a namespace, and returns how to move it back.
func enter(path string) (back func() error, err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	to, err := os.Open(path)
	if err != nil {
		home.Close()
		return nil, err
	}
	defer to.Close()
	if err := unix.Setns(int(to.Fd()), unix.CLONE_NEWNET); err != nil {
		home.Close()
		return nil, fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return func() error {
		defer home.Close()
		return unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
	}, nil
}
