package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	namespacesapi "github.com/containerd/containerd/api/services/namespaces/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/introspection"
	"github.com/containerd/containerd/v2/core/leases"
	// containerd's plugins register themselves when they are imported.
	_ "github.com/containerd/containerd/v2/core/runtime/v2"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins"
	_ "github.com/containerd/containerd/v2/plugins/content/local/plugin"
	_ "github.com/containerd/containerd/v2/plugins/diff/walking/plugin"
	_ "github.com/containerd/containerd/v2/plugins/events"
	_ "github.com/containerd/containerd/v2/plugins/gc"
	_ "github.com/containerd/containerd/v2/plugins/leases"
	_ "github.com/containerd/containerd/v2/plugins/metadata"
	_ "github.com/containerd/containerd/v2/plugins/server/ttrpc"
	"github.com/containerd/containerd/v2/plugins/services"
	_ "github.com/containerd/containerd/v2/plugins/services/containers"
	_ "github.com/containerd/containerd/v2/plugins/services/content"
	_ "github.com/containerd/containerd/v2/plugins/services/diff"
	_ "github.com/containerd/containerd/v2/plugins/services/events"
	_ "github.com/containerd/containerd/v2/plugins/services/images"
	_ "github.com/containerd/containerd/v2/plugins/services/introspection"
	_ "github.com/containerd/containerd/v2/plugins/services/namespaces"
	_ "github.com/containerd/containerd/v2/plugins/services/sandbox"
	_ "github.com/containerd/containerd/v2/plugins/services/snapshots"
	_ "github.com/containerd/containerd/v2/plugins/services/tasks"
	_ "github.com/containerd/containerd/v2/plugins/services/warning"
	_ "github.com/containerd/containerd/v2/plugins/snapshots/native/plugin"
	_ "github.com/containerd/containerd/v2/plugins/snapshots/overlay/plugin"
	"github.com/containerd/containerd/v2/version"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"monopod/runner/ctrd/bounded"
)

// wanted has the plug-ins to load by URI. Importing a package registers more of them, and other code in this process may register its own.
func wanted(snapshotter string) map[string]bool {
	set := map[string]bool{}
	for t, ids := range map[plugin.Type][]string{
		plugins.EventPlugin:        {"exchange"},
		plugins.ContentPlugin:      {"content"},
		plugins.SnapshotPlugin:     {snapshotter},
		plugins.MetadataPlugin:     {"bolt"},
		plugins.GCPlugin:           {"scheduler"},
		plugins.LeasePlugin:        {"manager"},
		plugins.DiffPlugin:         {"walking"},
		plugins.WarningPlugin:      {plugins.DeprecationsPlugin},
		plugins.ShimPlugin:         {"manager"},
		plugins.RuntimePluginV2:    {"task"},
		plugins.SandboxStorePlugin: {"local"},
		plugins.GRPCPlugin:         {"events"}, // it is a ttrpc service too
		plugins.ServerPlugin:       {"ttrpc"},
		plugins.ServicePlugin: {
			services.ContainersService, services.ContentService, services.DiffService, services.ImagesService,
			services.IntrospectionService, services.NamespacesService, services.SnapshotsService, services.TasksService,
		},
	} {
		for _, id := range ids {
			set[(&plugin.Registration{Type: t, ID: id}).URI()] = true
		}
	}
	return set
}

// settings are the options of plug-ins that differ from containerd's defaults, by URI.
func settings(cfg Config) map[string]any {
	return map[string]any{
		"io.containerd.server.v1.ttrpc": map[string]any{"address": ttrpcAddress(cfg)},
		"io.containerd.shim.v1.manager": map[string]any{"socket_dir": filepath.Join(sockets(cfg.State), socketDir), "env": cfg.ShimEnv},
		// Without it a power loss after a pull can leave empty files in an image that counts as unpacked.
		"io.containerd.service.v1." + services.DiffService: map[string]any{"sync_fs": true},
		// Collect one second after a deletion, and otherwise almost never. With containerd's defaults the collector wakes up four times
		// a second.
		"io.containerd.gc.v1.scheduler": map[string]any{
			"pause_threshold": 0.000001, "deletion_threshold": 1, "schedule_delay": "1s", "startup_delay": "5s",
		},
	}
}

func ttrpcAddress(cfg Config) string {
	return filepath.Join(sockets(cfg.State), ttrpcSocket)
}

// loader initializes plug-ins like containerd's server package, but only the wanted ones. All failures are errors, and it does not change the
// process (OOM score, cgroup, umask).
type loader struct {
	cfg  Config
	set  *plugin.Set
	last *plugin.InitContext
	// order has the loaded plug-ins, for closing them in reverse order.
	order []any
}

func (l *loader) load(ctx context.Context) error {
	bounded.RegisterLayers()
	want := wanted(l.cfg.Snapshotter)
	conf := &srvconfig.Config{Version: version.ConfigVersion, Plugins: settings(l.cfg)}
	l.set = plugin.NewPluginSet()
	var servers []starter
	for _, r := range registry.Graph(func(r *plugin.Registration) bool { return !want[r.URI()] }) {
		p, err := l.init(ctx, conf, r)
		if err != nil {
			return fmt.Errorf("plugin %s: %w", r.URI(), err)
		}
		delete(want, r.URI())
		l.order = append(l.order, p)
		if s, ok := p.(starter); ok && r.Type == plugins.ServerPlugin {
			servers = append(servers, s)
		}
	}
	for uri := range want {
		return fmt.Errorf("plugin %s is not built in", uri)
	}
	for _, s := range servers {
		if err := s.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

type starter interface {
	Start(ctx context.Context) error
}

func (l *loader) init(ctx context.Context, conf *srvconfig.Config, r plugin.Registration) (any, error) {
	l.last = plugin.NewContext(ctx, l.set, map[string]string{
		plugins.PropertyRootDir:  filepath.Join(l.cfg.Root, r.URI()),
		plugins.PropertyStateDir: filepath.Join(l.cfg.State, r.URI()),
		// Nothing listens on this address. Shims use it as the name of their containerd in the names of their sockets.
		plugins.PropertyGRPCAddress:  filepath.Join(l.cfg.State, "containerd.sock"),
		plugins.PropertyTTRPCAddress: ttrpcAddress(l.cfg),
	})
	l.last.RegisterReadiness = func() func() { return func() {} }
	if r.Config != nil {
		// The registered value is shared by all instances in this process.
		own := reflect.New(reflect.TypeOf(r.Config).Elem())
		own.Elem().Set(reflect.ValueOf(r.Config).Elem())
		c, err := conf.Decode(ctx, r.URI(), own.Interface())
		if err != nil {
			return nil, err
		}
		l.last.Config = c
	}
	p := r.Init(l.last)
	if err := l.set.Add(p); err != nil {
		return nil, err
	}
	return p.Instance()
}

// client returns a client that calls the plug-ins directly.
func (l *loader) client() (*client.Client, error) {
	var errs []error
	one := func(t plugin.Type, id string) any {
		p, err := l.last.GetByID(t, id)
		if err != nil {
			errs = append(errs, err)
		}
		return p
	}
	opts := []client.ServicesOpt{
		client.WithEventService(as[client.EventService](one(plugins.EventPlugin, "exchange"))),
		client.WithLeasesService(as[leases.Manager](one(plugins.LeasePlugin, "manager"))),
		client.WithSandboxStore(as[sandbox.Store](one(plugins.SandboxStorePlugin, "local"))),
		client.WithContentStore(bounded.Store(as[content.Store](one(plugins.ServicePlugin, services.ContentService)))),
		client.WithImageClient(as[imagesapi.ImagesClient](one(plugins.ServicePlugin, services.ImagesService))),
		client.WithSnapshotters(as[map[string]snapshots.Snapshotter](one(plugins.ServicePlugin, services.SnapshotsService))),
		client.WithContainerClient(as[containersapi.ContainersClient](one(plugins.ServicePlugin, services.ContainersService))),
		client.WithTaskClient(as[tasksapi.TasksClient](one(plugins.ServicePlugin, services.TasksService))),
		client.WithDiffClient(as[diffapi.DiffClient](one(plugins.ServicePlugin, services.DiffService))),
		client.WithNamespaceClient(as[namespacesapi.NamespacesClient](one(plugins.ServicePlugin, services.NamespacesService))),
		client.WithIntrospectionService(as[introspection.Service](one(plugins.ServicePlugin, services.IntrospectionService))),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return client.New("", client.WithDefaultNamespace(Namespace), client.WithServices(opts...))
}

// as returns nil for a missing plug-in, whose error is reported elsewhere.
func as[T any](v any) T {
	t, _ := v.(T)
	return t
}

func (l *loader) close() error {
	var errs []error
	for _, p := range slices.Backward(l.order) {
		if c, ok := p.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
