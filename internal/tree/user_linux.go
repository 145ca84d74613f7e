package tree

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is whose rights are used, in ids of the machine.
type User struct {
	UID, GID int
	Groups   []int
	// Capabilities are bits by their numbers. Only those count that are about files.
	Capabilities uint64
}

// fileCapabilities are those that files ask for.
const fileCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID

// Do calls what with the rights of the user, on a thread of its own that ends with it, so no other code runs with these rights. The real
// uid of the thread stays, so that processes of the user cannot send it signals.
func (u User) Do(what func() error) error {
	done := make(chan error, 1)
	go u.onThread(what, done)
	return <-done
}

// onThread does it on the goroutine's thread, unless that is the first one, which cannot end.
func (u User) onThread(what func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		other := make(chan error, 1)
		go u.onThread(what, other) // on another one: this is held
		done <- <-other
		runtime.UnlockOSThread()
		return
	}
	err := u.become()
	if err == nil {
		err = what()
	}
	done <- err
}

// become changes the thread. The functions of syscall would change all threads.
func (u User) become() error {
	if unix.Geteuid() != 0 { // who has no other rights to take
		return nil
	}
	groups := make([]uint32, len(u.Groups)+1) // never empty
	for i, g := range u.Groups {
		groups[i] = uint32(g)
	}
	const keep = ^uintptr(0)
	set := func(trap, a, b, c uintptr) error {
		if _, _, errno := unix.RawSyscall(trap, a, b, c); errno != 0 {
			return errno
		}
		return nil
	}
	err := errors.Join(
		set(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(unsafe.Pointer(&groups[0])), 0),
		set(unix.SYS_SETRESGID, keep, uintptr(u.GID), keep),
		set(unix.SYS_SETRESUID, keep, uintptr(u.UID), keep),
	)
	if err != nil {
		return fmt.Errorf("switch to user %d: %w", u.UID, err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	data[0].Effective, data[1].Effective = uint32(u.Capabilities&fileCapabilities)&data[0].Permitted, 0
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}
