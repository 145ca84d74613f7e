package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/dirlock"
	"monopod/internal/trial"
)

// Each run of `once` or `up` uses a slot: a numbered pair of directories beside those of the daemon,
// <rootDirectory>-runs/N and <stateDirectory>-runs/N. A run locks the first one until it ends, so a free lock means that
// the run is dead. runFile exists as long as anything of a run may be on the machine. Afterwards only the images stay,
// for the next run in the slot.
const (
	RunsSuffix = "-runs"
	// maxRuns limits the concurrent runs.
	maxRuns = 256
	// runFile is the configuration of the run.
	runFile = "run.yaml"
	// KeptFile marks a run whose pods `once` has kept: only `down` may remove it. It has the places of their manifests.
	KeptFile = "kept"
	// kubeconfigFile is the kubeconfig for the command of `up --api`.
	kubeconfigFile = "kubeconfig"
	// RunLog is the log of the run's daemon.
	RunLog = "monopod.log"
)

// Slot is a numbered pair of directories for one run.
type Slot struct {
	number      int
	base        *config.Loaded
	Root, State string
	held        dirlock.Locks
	// subnet is the open lock file while a subnet is locked.
	subnet *os.File
}

// NewSlot returns the slot with a number.
func NewSlot(base *config.Loaded, number int) *Slot {
	n := strconv.Itoa(number)
	return &Slot{number: number, base: base, Root: filepath.Join(base.RootDirectory+RunsSuffix, n), State: filepath.Join(base.StateDirectory+RunsSuffix, n)}
}

// Slots returns the existing slots, sorted by number.
func Slots(base *config.Loaded) ([]*Slot, error) {
	entries, err := os.ReadDir(base.RootDirectory + RunsSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var all []*Slot
	for n := range maxRuns {
		for _, e := range entries {
			if e.Name() == strconv.Itoa(n) {
				all = append(all, NewSlot(base, n))
			}
		}
	}
	return all, nil
}

// Lock locks the slot. If a run is alive in it, dirlock.IsHeld reports true for the error.
func (s *Slot) Lock() (err error) {
	s.held, err = dirlock.TakeLocks(0, s.Root, s.State)
	return err
}

// Release unlocks the slot.
func (s *Slot) Release() {
	s.held.Release()
	s.held = nil
	if s.subnet != nil {
		s.subnet.Close()
		s.subnet = nil
	}
}

// Has reports whether the slot contains a file.
func (s *Slot) Has(name string) bool {
	_, err := os.Stat(filepath.Join(s.Root, name))
	return err == nil
}

// Used reports whether anything of a run may be on the machine.
func (s *Slot) Used() bool { return s.Has(runFile) }

// Kept reports whether the pods of the run were kept.
func (s *Slot) Kept() bool { return s.Has(KeptFile) }

// ChooseSubnet finds a subnet that neither the machine nor another run uses, and locks it.
func (s *Slot) ChooseSubnet(m daemon.RunMachine) (string, error) {
	f, err := atomicfile.OpenLock(m.SubnetLocks, 0o600)
	if err != nil {
		return "", fmt.Errorf("choose a subnet: %w", err)
	}
	last := errors.New("there is none")
	for i := 0; ; i++ {
		subnet, ok, err := trial.Subnet(s.base.RunPodCIDR, i)
		if err != nil || !ok {
			f.Close()
			return "", errors.Join(err, fmt.Errorf("no subnet of runPodCIDR %s is free, set it to another one: %w", s.base.RunPodCIDR, last))
		}
		if last = lockByte(f, subnet); last != nil {
			continue
		}
		if last = m.Free(subnet); last == nil {
			s.subnet = f
			return subnet, nil
		}
		if err := unlockByte(f, subnet); err != nil {
			f.Close()
			return "", fmt.Errorf("choose a subnet: %w", err)
		}
	}
}

// byteOf returns the offset of a subnet in the lock file.
func byteOf(subnet string) int64 {
	h := fnv.New64a()
	h.Write([]byte(subnet))
	return int64(h.Sum64() >> 2)
}

// lockByte locks a subnet for as long as f is open: the lock belongs to the open file, not to the process.
func lockByte(f *os.File, subnet string) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: byteOf(subnet), Len: 1})
	if err != nil {
		return fmt.Errorf("%s is used by another run (%w)", subnet, err)
	}
	return nil
}

func unlockByte(f *os.File, subnet string) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Start: byteOf(subnet), Len: 1})
}

// Config returns the configuration of a run in the slot: that of the daemon, with its own directories, names and subnet.
func (s *Slot) Config(subnet string) *config.Loaded {
	c := *s.base
	c.Sources = maps.Clone(s.base.Sources)
	sum := sha256.Sum256([]byte(s.Root))
	id := hex.EncodeToString(sum[:4])
	c.StaticPodPath, c.StaticPodURL, c.StaticPodURLHeader = filepath.Join(s.Root, "manifests"), "", nil
	c.RemoteSources, c.SourceOrder = nil, nil
	// Port and clients belong to the daemon.
	c.APIServer = config.APIServer{MaxConnections: s.base.APIServer.MaxConnections, InertKinds: s.base.APIServer.InertKinds, PodUpdates: s.base.APIServer.PodUpdates}
	c.RootDirectory, c.StateDirectory, c.Socket = s.Root, s.State, filepath.Join(s.State, "monopod.sock")
	c.PodLogsDir, c.CNIConfDir = filepath.Join(s.Root, "logs", "pods"), ""
	c.PodCIDR, c.BridgeName, c.CgroupRoot, c.ContainerRuntimeEndpoint = subnet, "mp-"+id, s.base.CgroupRoot+"-"+id, ""
	for _, key := range []string{
		"staticPodPath", "staticPodURL", "staticPodURLHeader", "sources", "sourceOrder", "rootDirectory", "stateDirectory", "socket", "podLogsDir", "cniConfDir",
		"podCIDR", "bridgeName", "cgroupRoot", "containerRuntimeEndpoint", "apiServer.address", "apiServer.names", "apiServer.tokenFile", "apiServer.rules",
		"apiServer.anonymous",
	} {
		c.Sources[key] = "run " + strconv.Itoa(s.number)
	}
	c.Warnings = nil
	return &c
}

// Write stores the configuration of the run. If the run dies, the next one knows from it what to remove.
func (s *Slot) Write(cfg *config.Loaded) error {
	text, err := cfg.YAML()
	if err == nil {
		err = s.writeFile(runFile, []byte(text))
	}
	if err != nil {
		return fmt.Errorf("run %d: %w", s.number, err)
	}
	return nil
}

// writeFile replaces a file of the slot atomically, even across a power failure.
func (s *Slot) writeFile(name string, content []byte) error {
	path := filepath.Join(s.Root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if old, err := atomicfile.Read(path, atomicfile.MaxState); err == nil && bytes.Equal(old, content) {
		return nil
	}
	return atomicfile.Write(path, content, 0o600)
}

// Read returns the stored configuration.
func (s *Slot) Read() (*config.Loaded, error) {
	cfg, err := config.Load(&config.Flags{File: filepath.Join(s.Root, runFile)}, config.Environment{WorkDir: s.Root, Hostname: os.Hostname})
	if err != nil {
		return nil, fmt.Errorf("run %d: %w", s.number, err)
	}
	cfg.Warnings = nil
	return cfg, nil
}

// clear removes all files of the run except its images and its log. runFile is removed last.
func (s *Slot) clear() error {
	entries, err := os.ReadDir(s.Root)
	if err != nil {
		return err
	}
	stay := map[string]bool{"containerd": true, "bin": true, dirlock.LockName: true, RunLog: true, runFile: true}
	var errs []error
	for _, e := range entries {
		if !stay[e.Name()] {
			errs = append(errs, os.RemoveAll(filepath.Join(s.Root, e.Name())))
		}
	}
	errs = append(errs, os.RemoveAll(s.State))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the files of run %d: %w", s.number, err)
	}
	_ = os.Remove(filepath.Dir(s.State)) // unless there are others
	return IgnoreGone(os.Remove(filepath.Join(s.Root, runFile)))
}

// IgnoreGone returns nil for fs.ErrNotExist.
func IgnoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Drop removes the slot with its images. It must be locked and cleared. The lock file is removed last: without it, another
// run may use the slot at any moment.
func (s *Slot) Drop() error {
	entries, err := os.ReadDir(s.Root)
	errs := []error{err}
	for _, e := range entries {
		if e.Name() != dirlock.LockName {
			errs = append(errs, os.RemoveAll(filepath.Join(s.Root, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := IgnoreGone(os.Remove(filepath.Join(s.Root, dirlock.LockName))); err != nil {
		return err
	}
	_ = os.Remove(s.Root) // fails if another run uses it
	_ = os.Remove(filepath.Dir(s.Root))
	return nil
}
