// Package embed runs containerd inside this process. It owns containerd's directories while it runs, the lock
// on them, and which of containerd's plugins are loaded: the stores, the overlayfs (or native) snapshotter,
// the runtime, and a ttrpc server for the shims' events. There is no CRI, no gRPC and no metrics.
//
// It must not know pods or images. It returns an ordinary containerd client, without the services that are unused here (transfer, streaming,
// sandbox controllers).
//
// Goroutines: those of containerd; a few of its event exchange and garbage collector remain after stop. It can be started again in the same
// process. Stop cannot close the connections to shims, which end with the shim or the process: closing one makes containerd kill its container.
package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/timeout"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/embed/guard"
)

// Namespace is the default namespace of the client. In-process calls do not pass the interceptors that add it, so callers must put it into their
// context with namespaces.WithNamespace.
const Namespace = "monopod"

// The built-in snapshotters.
const (
	Overlayfs = "overlayfs"
	Native    = "native"
)

// Config of the embedded containerd.
type Config struct {
	// Root is the persistent directory (content, snapshots, metadata).
	Root string
	// State is the volatile directory (task bundles, sockets).
	State string
	// Snapshotter is Overlayfs or Native; empty: the result of Snapshotter(Root).
	Snapshotter string
	// ShimEnv is added to the environment of shims.
	ShimEnv []string
	// Guard checks the databases before they are opened, and keeps copies of them; nil: disabled.
	Guard *guard.Guard
	Log   *slog.Logger
}

func snapshotterDir(root, name string) string {
	return filepath.Join(root, "io.containerd.snapshotter.v1."+name)
}

// NewGuard returns a guard for the databases of an instance. Config.Snapshotter must be set. boot is the boot id of the machine.
func NewGuard(cfg Config, boot string, onRepair func(guard.Repair)) *guard.Guard {
	return guard.New(guard.Config{
		Metadata:  filepath.Join(cfg.Root, "io.containerd.metadata.v1.bolt", "meta.db"),
		Snapshots: filepath.Join(snapshotterDir(cfg.Root, cfg.Snapshotter), "metadata.db"),
		Mirror:    filepath.Join(cfg.State, "mirror"), Backup: filepath.Join(cfg.Root, "backup"), Boot: boot,
		OnRepair: onRepair, Log: cfg.Log,
	})
}

// Snapshotter returns the snapshotter for root: the one in use there, else Overlayfs, or Native (slow, copies everything) if file system or
// kernel do not support overlays. It mounts file systems to find that out.
func Snapshotter(root string) (string, error) {
	for _, file := range []string{"metadata.db", "snapshots"} { // the database may be lost
		for _, name := range []string{Overlayfs, Native} {
			if _, err := os.Lstat(filepath.Join(snapshotterDir(root, name), file)); err == nil {
				return name, nil
			}
		}
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("snapshotter: %w", err)
	}
	if err := overlayutils.Supported(root); err != nil {
		return Native, nil //nolint:nilerr // not supporting it is the answer
	}
	return Overlayfs, nil
}

// Start runs containerd in this process, and returns a client and a function that stops it. Shims and containers keep running after a stop.
// Meanwhile containerd's messages, whose logger is global, are logged to cfg.Log. A directory that another instance uses is an error at once.
func Start(ctx context.Context, cfg Config) (*client.Client, func(context.Context) error, error) {
	i, err := start(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("start containerd in %s: %w", cfg.Root, err)
	}
	return i.client, i.stop, nil
}

// instance is a running containerd.
type instance struct {
	client  *client.Client
	cancel  context.CancelFunc
	closers []func() error
}

func start(ctx context.Context, cfg Config) (*instance, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	// containerd's goroutines run until stop, not until ctx ends, because a shutdown still needs the client.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i := &instance{cancel: cancel}
	err := i.open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, i.close())
	}
	return i, nil
}

// complete validates the configuration and sets defaults.
func (c *Config) complete() (err error) {
	switch {
	case !filepath.IsAbs(c.Root) || !filepath.IsAbs(c.State):
		return fmt.Errorf("root %q and state %q must be absolute paths", c.Root, c.State)
	case filepath.Clean(c.Root) == filepath.Clean(c.State):
		return fmt.Errorf("root and state are both %q; they must differ", c.Root)
	}
	c.Root, c.State = filepath.Clean(c.Root), filepath.Clean(c.State)
	if c.Snapshotter == "" {
		c.Snapshotter, err = Snapshotter(c.Root)
	}
	if c.Snapshotter == Native {
		c.Log.Warn("images are copied for each container: overlayfs does not work here", "directory", c.Root)
	}
	return err
}

// shimTimeout is how long a shim may take to answer when containerd starts, which waits for it.
const shimTimeout = 30 * time.Second

func (i *instance) open(ctx context.Context, cfg Config) error {
	// State is readable for users of other user namespaces; its files have their own permissions.
	for dir, mode := range map[string]os.FileMode{cfg.Root: 0o700, cfg.State: 0o711} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return err
		}
		lock, err := lockDir(dir)
		if err != nil {
			return err
		}
		i.closers = append(i.closers, lock.Close)
	}
	restore := setLog(cfg.Log)
	i.closers = append(i.closers, func() error { restore(); return nil })
	if err := cleanTemp(cfg); err != nil {
		return err
	}
	cleanBundles(cfg)
	if err := i.openSockets(cfg); err != nil {
		return err
	}
	// An external containerd has no lock file, and opening its database would block.
	timeout.Set("io.containerd.timeout.bolt.open", 5*time.Second)
	// containerd gives up a shim that does not answer in time, and kills its container. A machine that is short of memory or CPU must not
	// lose pods by a restart of the agent.
	timeout.Set("io.containerd.timeout.shim.load", shimTimeout)
	if err := cfg.Guard.Restore(); err != nil {
		return err
	}
	i.closers = append(i.closers, cfg.Guard.Close) // after the databases are closed: the last copy has all
	l := &loader{cfg: cfg}
	err := l.load(ctx)
	i.closers = append(i.closers, l.close)
	if err != nil {
		return err
	}
	if err := cfg.Guard.Watch(); err != nil {
		cfg.Log.Warn("databases are not backed up", "err", err)
	}
	i.client, err = l.client()
	if err != nil {
		return err
	}
	i.closers = append(i.closers, i.client.Close)
	return nil
}

// openSockets prepares the directory of the sockets.
func (i *instance) openSockets(cfg Config) error {
	dir := sockets(cfg.State)
	if dir != cfg.State {
		held, err := holdSockets(dir)
		if err != nil {
			return err
		}
		i.closers = append(i.closers, held.Close) // after removeSockets
	}
	sweepOthers(shortSockets)
	sweepSockets(dir)
	i.closers = append(i.closers, func() error { removeSockets(dir, cfg.State); return nil })
	return nil
}

// cleanTemp removes mounts of an earlier instance that was killed while it unpacked an image.
func cleanTemp(cfg Config) error {
	dir := filepath.Join(cfg.State, "tmpmounts")
	if err := mount.SetTempMountLocation(dir); err != nil {
		return fmt.Errorf("directory for temporary mounts: %w", err)
	}
	warnings, err := mount.CleanupTempMounts(0)
	if err != nil {
		warnings = append(warnings, err)
	}
	for _, w := range warnings {
		cfg.Log.Warn("cannot remove a temporary mount", "directory", dir, "err", w)
	}
	return nil
}

// cleanBundles removes bundles whose removal an earlier instance had begun when it was killed: containerd renames them to hidden names first,
// and ignores these later.
func cleanBundles(cfg Config) {
	for _, top := range []string{cfg.State, cfg.Root} {
		left, _ := filepath.Glob(filepath.Join(top, "io.containerd.runtime.v2.task", "*", ".*")) // the pattern is valid
		for _, dir := range left {
			err := mount.UnmountRecursive(filepath.Join(dir, "rootfs"), unix.MNT_DETACH)
			if err == nil {
				err = os.RemoveAll(dir)
			}
			if err != nil {
				cfg.Log.Warn("cannot remove the bundle of a removed container", "directory", dir, "err", err)
			}
		}
	}
}

// stop waits for writes in progress. ctx is not used, because nothing takes long.
func (i *instance) stop(context.Context) error {
	if err := i.close(); err != nil {
		return fmt.Errorf("stop containerd: %w", err)
	}
	return nil
}

// close closes what open opened, in reverse order.
func (i *instance) close() error {
	i.cancel()
	var errs []error
	for _, c := range slices.Backward(i.closers) {
		errs = append(errs, c())
	}
	i.closers = nil
	return errors.Join(errs...)
}
