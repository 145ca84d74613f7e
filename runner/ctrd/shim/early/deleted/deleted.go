// Package deleted owns the note that a shim leaves in the bundle of a container that it has deleted completely, including runtime state and
// mounts.
//
// containerd runs the shim's program with the command delete whenever a shim has exited, even after it has deleted the container itself.
// The note contains the answer, and package early prints it before any other package of the program is initialized. Therefore this package
// must import only packages for system calls.
package deleted

import "syscall"

// file is the name of the note in a bundle.
const file = "deleted"

// maxAnswer is more than an answer needs: three numbers and a time.
const maxAnswer = 255

// Write writes the note. An answer that is too long is omitted; the shim's program then determines it in the usual way.
func Write(bundle string, answer []byte) error {
	fd, err := retry(func() (int, error) {
		return syscall.Open(bundle+"/"+file, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	if len(answer) > maxAnswer {
		return nil
	}
	_, err = retry(func() (int, error) { return syscall.Write(fd, append([]byte{byte(len(answer))}, answer...)) })
	return err
}

// Is reports whether the note exists.
func Is(bundle string) bool {
	var st syscall.Stat_t
	return syscall.Stat(bundle+"/"+file, &st) == nil
}

// Read returns the answer in a bundle's note; ok is false if there is none or it is incomplete.
func Read(bundle string) (answer []byte, ok bool) {
	text := read(bundle+"/"+file, maxAnswer+2)
	if len(text) < 2 || int(text[0]) != len(text)-1 {
		return nil, false
	}
	return text[1:], true
}

// Answer prints the answer to the command of this process, if a note has it, and reports whether it did. The working directory is the
// bundle of a container, and the command concerns that container or one in a bundle next to it.
func Answer() bool {
	id, ok := parse(string(read("/proc/self/cmdline", maxCommand)))
	if !ok {
		return false
	}
	answer, ok := Read("../" + id)
	if !ok {
		return false
	}
	n, err := retry(func() (int, error) { return syscall.Write(1, answer) })
	return err == nil && n == len(answer)
}

// maxCommand is longer than any command line of a shim.
const maxCommand = 8 << 10

// parse parses a command line with a zero byte after each argument. ok reports whether it is the command delete.
func parse(cmdline string) (id string, ok bool) {
	var last, word string
	begin := 0
	for i := range len(cmdline) {
		if cmdline[i] != 0 {
			continue
		}
		last, word = word, cmdline[begin:i]
		begin = i + 1
		if last == "-id" {
			id = word
		}
	}
	for i := range len(id) {
		if id[i] == '/' {
			return "", false
		}
	}
	value := last != "" && last[0] == '-' && last != "-debug" // the last word is an option's
	return id, begin == len(cmdline) && word == "delete" && !value && id != "" && id[0] != '.'
}

// read returns the content of a file shorter than limit; nil if it is longer or cannot be read.
func read(path string, limit int) []byte {
	fd, err := retry(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil
	}
	defer func() { _ = syscall.Close(fd) }()
	text := make([]byte, limit)
	for have := 0; have < limit; {
		n, err := retry(func() (int, error) { return syscall.Read(fd, text[have:]) })
		if err != nil {
			return nil
		}
		if n == 0 {
			return text[:have]
		}
		have += n
	}
	return nil
}

// retry repeats a system call after EINTR.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != syscall.EINTR { //nolint:errorlint // package errors is one that is not ready
			return n, err
		}
	}
}
