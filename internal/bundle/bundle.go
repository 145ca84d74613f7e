// Package bundle carries programs (monopod, its shim, runc, CNI plugins) in a compressed archive and unpacks them, for cmd/launcher. A build
// without the tag "bundle" carries nothing.
//
// It owns the directory that it unpacks to. It must not remove programs in use: shims of running containers, and the runc that will stop them,
// may be of an earlier version.
package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
)

const (
	// sumsFile is for users: `sha256sum -c` reads it.
	sumsFile = "SHA256SUMS"
	// checkedFile records the last successful check of the checksums: the boot, and the state of the files.
	checkedFile = "CHECKED"
	lockFile    = ".lock"
	tmpPrefix   = ".unpack-"
	programMode = 0o755
)

// ErrNoExec reports a file system that programs cannot be executed from.
var ErrNoExec = errors.New("mounted with noexec")

// Parcel is an archive of programs with the list of its content.
type Parcel struct {
	archive []byte
	list    list
	// proc is /proc, which shows the running programs.
	proc string
}

// Carried returns the programs in this binary, or an error if there are none.
func Carried() (*Parcel, error) {
	archive, text := embedded()
	if len(archive) == 0 {
		return nil, errors.New("this program contains no bundle: it was not built with `make bundle`")
	}
	return newParcel(archive, text)
}

func newParcel(archive, text []byte) (*Parcel, error) {
	l, err := parseList(text)
	if err != nil {
		return nil, err
	}
	return &Parcel{archive: archive, list: l, proc: "/proc"}, nil
}

// Dir returns the directory below dir for the programs of this version. It may not exist.
func (p *Parcel) Dir(dir string) string { return filepath.Join(dir, p.list.version) }

// Whole reports whether final has all programs, unchanged according to size, time and owner. Checking checksums at each start would take longer
// than most commands.
func (p *Parcel) Whole(final string) bool {
	_, ok := p.look(final)
	return ok
}

// look returns the state of the files in final, which changes with their content. ok is false if they differ from what was unpacked.
func (p *Parcel) look(final string) (string, bool) {
	var seen []byte
	for _, f := range p.list.files {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(final, f.name), &st); err != nil {
			return "", false
		}
		trusted := st.Uid == 0 || int(st.Uid) == os.Geteuid()
		if st.Mode != syscall.S_IFREG|programMode || st.Size != f.size || st.Mtim.Nano() != unpackedAt().UnixNano() || !trusted {
			return "", false
		}
		seen = fmt.Appendf(seen, "%d %d %d\n", st.Dev, st.Ino, st.Ctim.Nano())
	}
	return string(seen), true
}

// unpackedAt is the modification time of all programs; a later start uses it to recognize unmodified files.
func unpackedAt() time.Time { return time.Unix(1, 0) }

// Sound reports whether final has all programs with the right content. Checksums are verified once per boot and after a modification, so that
// damage by a power loss is detected, and a restart of the daemon does not wait.
func (p *Parcel) Sound(final string) bool {
	seen, ok := p.look(final)
	if !ok {
		return false
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	mark, path := string(boot)+seen, filepath.Join(final, checkedFile)
	if before, rerr := os.ReadFile(path); err == nil && rerr == nil && string(before) == mark {
		return true
	}
	if !p.sumsAreRight(final) {
		return false
	}
	if err == nil {
		_ = os.WriteFile(path, []byte(mark), 0o644) // else they are computed again the next time
	}
	return true
}

func (p *Parcel) sumsAreRight(final string) bool {
	var wrong atomic.Bool
	var wg sync.WaitGroup
	for _, f := range p.list.files {
		wg.Go(func() {
			if sum, err := sumOf(filepath.Join(final, f.name)); err != nil || sum != f.sum {
				wrong.Store(true)
			}
		})
	}
	wg.Wait()
	return !wrong.Load()
}

// Unpack returns the directory below dir with the programs, which it unpacks unless good (Whole or Sound) accepts it. The directory appears
// complete and synced, or not at all. Several processes may unpack concurrently. Unused earlier versions are removed.
func (p *Parcel) Unpack(dir string, good func(final string) bool) (string, error) {
	final := p.Dir(dir)
	if good(final) {
		return final, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if noExec(dir) {
		return "", fmt.Errorf("%s: %w", dir, ErrNoExec)
	}
	unlock, err := lock(filepath.Join(dir, lockFile))
	if err != nil {
		return "", err
	}
	defer unlock()
	if good(final) { // another process was faster
		return final, nil
	}
	if err := removeAbandoned(dir); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, tmpPrefix)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	fresh := filepath.Join(tmp, "new")
	if err := p.extract(fresh); err != nil {
		return "", fmt.Errorf("unpack to %s: %w", dir, err)
	}
	if err := place(fresh, final, filepath.Join(tmp, "old")); err != nil {
		return "", err
	}
	prune(dir, final, p.proc)
	return final, nil
}

// lock waits until no other process unpacks to path, and returns the function that unlocks. The kernel unlocks when the process ends.
func lock(path string) (unlock func(), err error) {
	f, err := atomicfile.OpenLock(path, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// removeAbandoned removes incomplete directories of killed processes. The lock must be held.
func removeAbandoned(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, tmpPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// place renames fresh to final, and sets a damaged final aside.
func place(fresh, final, old string) error {
	err := os.Rename(fresh, final)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) {
		if err = os.Rename(final, old); err == nil {
			err = os.Rename(fresh, final)
		}
	}
	if err == nil {
		err = syncDir(filepath.Dir(final))
	}
	return err
}

func noExec(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC != 0
}
