package ctrd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/plugins"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/shim"
	"monopod/runner/ctrd/shims"
)

// imageRoot is a directory on the file system of the images.
func (r *Runtime) imageRoot() string {
	if r.cfg.Endpoint == "" {
		return filepath.Join(r.cfg.RootDirectory, "containerd")
	}
	return cmp.Or(r.snapshots, r.cfg.RootDirectory)
}

// findSnapshots asks another containerd where its snapshotter keeps its files; empty: it does not say.
func (r *Runtime) findSnapshots(ctx context.Context) string {
	answer, err := r.client.IntrospectionService().Plugins(ctx, "type=="+string(plugins.SnapshotPlugin)+",id=="+r.cfg.Snapshotter)
	if err != nil || len(answer.Plugins) == 0 {
		return ""
	}
	root := answer.Plugins[0].Exports["root"]
	if _, err := os.Stat(root); err != nil {
		return ""
	}
	return root
}

// connect starts the embedded containerd or connects to another.
func (r *Runtime) connect(ctx context.Context) error {
	if r.cfg.Endpoint != "" {
		return r.connectTo(ctx)
	}
	if err := shims.BecomeSubreaper(); err != nil {
		return err
	}
	root := filepath.Join(r.cfg.RootDirectory, "containerd")
	if r.cfg.Snapshotter == "" {
		var err error
		if r.cfg.Snapshotter, err = embed.Snapshotter(root); err != nil {
			return err
		}
	}
	cfg := embed.Config{
		Root:        root,
		State:       filepath.Join(r.cfg.StateDirectory, "containerd"),
		Snapshotter: r.cfg.Snapshotter,
		ShimEnv:     shim.InCgroups(r.cfg.ShimCgroups),
		Log:         r.log,
	}
	cfg.Guard = embed.NewGuard(cfg, r.bootID, r.notices.DatabaseNotice)
	c, stop, err := embed.Start(ctx, cfg)
	if err != nil {
		return err
	}
	r.client = c
	r.onClose(stop)
	return nil
}

func (r *Runtime) connectTo(ctx context.Context) error {
	// The client's own back-off would keep us from a containerd that is back for up to ten seconds.
	retry := backoff.Config{BaseDelay: minReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	c, err := client.New(layout.EndpointPath(r.cfg.Endpoint), client.WithDefaultNamespace(r.cfg.Namespace),
		client.WithExtraDialOpts([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second})}))
	if err != nil {
		return fmt.Errorf("connect to containerd at %s: %w", r.cfg.Endpoint, err)
	}
	r.onClose(func(context.Context) error { return c.Close() })
	if r.client, err = boundedClient(c, r.cfg.Namespace); err != nil {
		return fmt.Errorf("client of containerd at %s: %w", r.cfg.Endpoint, err)
	}
	if r.cfg.Snapshotter == "" {
		r.cfg.Snapshotter = embed.Overlayfs
	}
	if err := r.askVersion(ctx); err != nil {
		return fmt.Errorf("containerd at %s: %w", r.cfg.Endpoint, err)
	}
	r.snapshots = r.findSnapshots(ctx)
	// Images are mounted by this process to look into them; what it left there when it was killed goes.
	if err := mount.SetTempMountLocation(r.dirs.Path("tmpmounts")); err != nil {
		return fmt.Errorf("directory for temporary mounts: %w", err)
	}
	warnings, err := mount.CleanupTempMounts(0)
	for _, w := range append(warnings, err) {
		if w != nil {
			r.log.Warn("temporary mount is left", "err", w)
		}
	}
	return nil
}

// boundedClient limits what this process reads of manifests and configs into memory, also of those that others gave another containerd.
func boundedClient(c *client.Client, namespace string) (*client.Client, error) {
	conn, ok := c.Conn().(*grpc.ClientConn)
	if !ok {
		return nil, fmt.Errorf("its connection is a %T", c.Conn())
	}
	return client.NewWithConn(conn, client.WithDefaultNamespace(namespace), client.WithServices(client.WithContentStore(bounded.Store(c.ContentStore()))))
}
