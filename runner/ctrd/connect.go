package ctrd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/plugins"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/embed/guard"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/shim"
	"monopod/runner/ctrd/shims"
)

// containerd is the embedded containerd, or a connection to an external one.
type containerd struct {
	client      *client.Client
	snapshotter string
	// images is a directory on the file system that holds the images.
	images string
	// another is set for an external containerd; version is its latest known version.
	another bool
	version atomic.Pointer[string]
	// stop shuts down the embedded containerd, or closes the connection.
	stop func(context.Context) error
}

// startContainerd starts the embedded containerd. It calls repaired for each damaged database.
func startContainerd(ctx context.Context, c *Config, bootID string, repaired func(guard.Repair)) (_ *containerd, err error) {
	if err := shims.BecomeSubreaper(); err != nil {
		return nil, err
	}
	root := filepath.Join(c.RootDirectory, "containerd")
	d := &containerd{snapshotter: c.Snapshotter, images: root}
	if d.snapshotter == "" {
		if d.snapshotter, err = embed.Snapshotter(root); err != nil {
			return nil, err
		}
	}
	cfg := embed.Config{
		Root:        root,
		State:       filepath.Join(c.StateDirectory, "containerd"),
		Snapshotter: d.snapshotter,
		ShimEnv:     shim.InCgroups(c.ShimCgroups),
		Log:         c.Log,
	}
	cfg.Guard = embed.NewGuard(cfg, bootID, repaired)
	d.client, d.stop, err = embed.Start(ctx, cfg)
	return d, err
}

// dialContainerd connects to an external containerd.
func dialContainerd(ctx context.Context, c *Config, tmpMounts string) (_ *containerd, err error) {
	// The client's default back-off would take up to ten seconds to notice that containerd is back.
	retry := backoff.Config{BaseDelay: minReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	unbounded, err := client.New(layout.EndpointPath(c.Endpoint), client.WithDefaultNamespace(c.Namespace),
		client.WithExtraDialOpts([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second})}))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", c.Endpoint, err)
	}
	d := &containerd{another: true, snapshotter: cmp.Or(c.Snapshotter, embed.Overlayfs), stop: func(context.Context) error { return unbounded.Close() }}
	defer func() {
		if err != nil {
			err = errors.Join(err, unbounded.Close())
		}
	}()
	if d.client, err = boundedClient(unbounded, c.Namespace); err != nil {
		return nil, fmt.Errorf("client of containerd at %s: %w", c.Endpoint, err)
	}
	if err := d.askVersion(ctx); err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", c.Endpoint, err)
	}
	d.images = cmp.Or(d.snapshots(ctx), c.RootDirectory)
	// This process mounts images to read files of them. Remove mounts that a killed process left.
	if err := mount.SetTempMountLocation(tmpMounts); err != nil {
		return nil, fmt.Errorf("directory for temporary mounts: %w", err)
	}
	warnings, left := mount.CleanupTempMounts(0)
	for _, w := range append(warnings, left) {
		if w != nil {
			c.Log.Warn("cannot remove a temporary mount", "err", w)
		}
	}
	return d, nil
}

// snapshots returns the directory of an external containerd's snapshotter; empty if it is unknown.
func (d *containerd) snapshots(ctx context.Context) string {
	answer, err := d.client.IntrospectionService().Plugins(ctx, "type=="+string(plugins.SnapshotPlugin)+",id=="+d.snapshotter)
	if err != nil || len(answer.Plugins) == 0 {
		return ""
	}
	root := answer.Plugins[0].Exports["root"]
	if _, err := os.Stat(root); err != nil {
		return ""
	}
	return root
}

// askVersion checks that containerd answers. It stores the version of an external one, which may be newer after a restart.
func (d *containerd) askVersion(ctx context.Context) error {
	v, err := d.client.Version(ctx)
	if err == nil && d.another {
		d.version.Store(&v.Version)
	}
	return err
}

// boundedClient limits how much of a manifest or config this process reads into memory, also of images that other clients stored.
func boundedClient(c *client.Client, namespace string) (*client.Client, error) {
	conn, ok := c.Conn().(*grpc.ClientConn)
	if !ok {
		return nil, fmt.Errorf("its connection is a %T", c.Conn())
	}
	return client.NewWithConn(conn, client.WithDefaultNamespace(namespace), client.WithServices(client.WithContentStore(bounded.Store(c.ContentStore()))))
}
