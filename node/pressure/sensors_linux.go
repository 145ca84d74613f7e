package pressure

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Kernel reads levels from the kernel. It is Sensors.
type Kernel struct {
	// Root is where proc and sys are; empty: /.
	Root string
	// NodeFs and ImageFs are directories on the file systems of what pods write and of images.
	NodeFs, ImageFs string
	// PodsMemory is the directory of the memory controller of the cgroup of all pods; empty: they have no limit.
	PodsMemory string

	buf []byte
}

// Read implements Sensors.
func (k *Kernel) Read(into Observations) {
	k.memory(into)
	k.pids(into)
	k.allocatable(into)
	disk(into, k.NodeFs, NodeFsAvailable, NodeFsInodesFree)
	disk(into, k.ImageFs, ImageFsAvailable, ImageFsInodesFree)
}

// file returns the content of a file, until the next one is read; nil: it cannot be read.
func (k *Kernel) file(elem ...string) []byte {
	if k.buf == nil {
		k.buf = make([]byte, 16<<10)
	}
	fd, err := unix.Open(filepath.Join(elem...), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	n := 0
	for n < len(k.buf) {
		got, err := unix.Read(fd, k.buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || got <= 0 {
			break
		}
		n += got
	}
	return k.buf[:n]
}

func (k *Kernel) root() string {
	if k.Root == "" {
		return "/"
	}
	return k.Root
}

// field is the number behind a name at the start of a line.
func field(text []byte, name string) (int64, bool) {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return number(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB")))
		}
	}
	return 0, false
}

func number(text []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// memory takes the kernel's own estimate of what new processes could have.
func (k *Kernel) memory(into Observations) {
	text := k.file(k.root(), "proc/meminfo")
	total, ok1 := field(text, "MemTotal:")
	available, ok2 := field(text, "MemAvailable:")
	if ok1 && ok2 {
		into[MemoryAvailable] = Level{available << 10, total << 10}
	}
}

func (k *Kernel) pids(into Observations) {
	most, ok1 := number(k.file(k.root(), "proc/sys/kernel/pid_max"))
	threads, ok2 := number(k.file(k.root(), "proc/sys/kernel/threads-max"))
	load := k.file(k.root(), "proc/loadavg") // 0.00 0.01 0.05 1/123 4567
	_, rest, ok3 := bytes.Cut(load, []byte("/"))
	running, _, _ := bytes.Cut(rest, []byte(" "))
	n, ok4 := number(running)
	if ok1 && ok2 && ok3 && ok4 {
		most = min(most, threads)
		into[PIDAvailable] = Level{most - n, most}
	}
}

// allocatable is what remains of the limit of all pods; inactive file pages count as free.
func (k *Kernel) allocatable(into Observations) {
	if k.PodsMemory == "" {
		return
	}
	read := func(names ...string) (int64, bool) {
		for _, name := range names {
			if n, ok := number(k.file(k.PodsMemory, name)); ok {
				return n, true
			}
		}
		return 0, false
	}
	limit, ok1 := read("memory.max", "memory.limit_in_bytes")
	used, ok2 := read("memory.current", "memory.usage_in_bytes")
	if !ok1 || !ok2 || limit >= 1<<62 {
		return
	}
	stat := k.file(k.PodsMemory, "memory.stat")
	cached, ok := field(stat, "total_inactive_file ")
	if !ok {
		cached, _ = field(stat, "inactive_file ")
	}
	into[AllocatableMemoryAvailable] = Level{limit - max(used-cached, 0), limit}
}

func disk(into Observations, dir string, available, inodes Signal) {
	var s unix.Statfs_t
	if dir == "" || unix.Statfs(dir, &s) != nil {
		return
	}
	into[available] = Level{int64(s.Bavail * uint64(s.Bsize)), int64(s.Blocks * uint64(s.Bsize))}
	if s.Files > 0 { // btrfs has no number of them
		into[inodes] = Level{int64(s.Ffree), int64(s.Files)}
	}
}

// stallTrigger makes the kernel report when tasks have waited for memory for a tenth of a second within two seconds: windows of whole two
// seconds need no privilege, and cost nothing while no task waits.
const stallTrigger = "some 200000 2000000\x00"

// Stalls implements Sensors.
func (k *Kernel) Stalls(ctx context.Context, wake chan<- struct{}) {
	fd, err := unix.Open(filepath.Join(k.root(), "proc/pressure/memory"), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Write(fd, []byte(stallTrigger)); err != nil {
		return
	}
	end, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(end) }()
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_, _ = unix.Write(end, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		close(told)
	})
	defer func() {
		if !stop() {
			<-told // the descriptor may be somebody else's soon
		}
	}()
	watched := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}, {Fd: int32(end), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(watched, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || ctx.Err() != nil || watched[1].Revents != 0 || watched[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0 {
			return
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}
