package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fromMemory executes monopod without writing to a disk: from a memory file that disappears with the process.
func fromMemory(l *launcher) error {
	fd, err := unix.MemfdCreate(program, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all of them may be executed
		fd, err = unix.MemfdCreate(program, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), program)
	defer f.Close()
	if err := l.parcel.Program(program, f); err != nil {
		return err
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	return fmt.Errorf("start from memory: %w", l.exec(fmt.Sprintf("/proc/self/fd/%d", fd), l.args, l.env))
}
