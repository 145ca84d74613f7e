// Package oci chooses the OCI runtime of a pod and knows the features of each installed one. It must not run containers.
package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"golang.org/x/sys/unix"

	"monopod/internal/cause"
	"monopod/internal/sharing"
	"monopod/manifests"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/idrange"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// Runtime is an OCI runtime and its state directory, which no two runtimes can share.
type Runtime struct{ Path, Root string }

// Runtimes chooses the OCI runtime of a pod, and caches their features.
type Runtimes struct {
	Dirs layout.Dirs
	// DefaultRuntime and ShippedRuntime are for pods without a RuntimeClass; ShippedRuntime may be empty.
	DefaultRuntime, ShippedRuntime string
	// Handlers returns those of RuntimeClasses; nil: none.
	Handlers    func(handler string) (path string, err error)
	Snapshotter string
	Log         *slog.Logger

	features featureBook
}

// usual returns the OCI runtime of pods without special requirements.
func (r *Runtimes) usual() Runtime {
	return Runtime{Path: r.DefaultRuntime, Root: r.Dirs.Path("runc")}
}

// shipped returns the runtime that is part of monopod, which may be newer; its path is empty if there is none.
func (r *Runtimes) shipped() Runtime {
	return Runtime{Path: r.ShippedRuntime, Root: r.Dirs.Path("runc-shipped")}
}

// handled returns the OCI runtime of a RuntimeClass.
func (r *Runtimes) handled(handler string) (Runtime, error) {
	find := r.Handlers
	if find == nil {
		return Runtime{}, cause.Wrap(fmt.Errorf("there is no OCI runtime for handler %q", handler), noHandler())
	}
	path, err := find(handler)
	return Runtime{Path: path, Root: r.Dirs.Path("handlers", handler)}, cause.Wrap(err, noHandler())
}

// noHandler returns the cause of an error of a RuntimeClass.
func noHandler() cause.Cause { return cause.Cause{Kind: cause.Sandbox, Fault: cause.Handler} }

// RuntimeFor chooses the OCI runtime of a pod: that of its RuntimeClass, else the usual one, unless only the shipped one supports
// what the pod needs.
func (r *Runtimes) RuntimeFor(ctx context.Context, handler string, users bool) (Runtime, error) {
	if handler != "" {
		rt, err := r.handled(handler)
		if err == nil && users {
			err = r.mapsUsers(ctx, rt)
		}
		return rt, err
	}
	if !users {
		return r.usual(), nil
	}
	err := r.mapsUsers(ctx, r.usual())
	if err != nil && r.ShippedRuntime != "" && r.mapsUsers(ctx, r.shipped()) == nil {
		return r.shipped(), nil
	}
	return r.usual(), err
}

// RuntimeOf returns the OCI runtime for the containers of a sandbox.
func (r *Runtimes) RuntimeOf(ctx context.Context, sb *record.Sandbox) (Runtime, error) {
	return r.RuntimeFor(ctx, sb.Meta.Handler, sb.Meta.FirstID > 0)
}

// CheckRuntime resolves the RuntimeClass of a pod, and checks that its runtime exists and supports what the pod needs.
func (r *Runtimes) CheckRuntime(ctx context.Context, pod *manifests.Pod) (manifests.Runtime, error) {
	class, err := manifests.RuntimeOf(pod)
	if err != nil {
		if name := pod.Object.Spec.RuntimeClassName; name != nil {
			err = cmp.Or(sharing.Refused(pod.Refs, manifests.ObjectID{Kind: "RuntimeClass", Name: *name}), cause.Wrap(err, noHandler()))
		}
		return class, err
	}
	if idrange.Wanted(pod.Object) {
		if err := r.checkUserNamespaces(); err != nil {
			return class, err
		}
	}
	_, err = r.RuntimeFor(ctx, class.Handler, idrange.Wanted(pod.Object))
	if err != nil && class.Handler != "" {
		err = fmt.Errorf("RuntimeClass %q: %w", *pod.Object.Spec.RuntimeClassName, err)
	}
	return class, err
}

// mapsUsers checks that a runtime supports user namespaces.
func (r *Runtimes) mapsUsers(ctx context.Context, rt Runtime) error {
	f, err := r.features.of(ctx, rt.Path)
	switch {
	case err != nil:
		return withoutUsers("%w", err)
	case !f.mapsIDs:
		return withoutUsers("runtime does not support user namespaces: %s has no id-mapped mounts; runc supports them since 1.2", rt.Path)
	}
	return nil
}

// features are the features of an OCI runtime that matter here.
type features struct {
	// mapsIDs is set if it supports id-mapped mounts.
	mapsIDs bool
	// mountOptions are the supported ones.
	mountOptions []string
}

// parseFeatures reads the output of `runc features`.
func parseFeatures(text []byte) (features, error) {
	var f struct {
		MountOptions []string `json:"mountOptions"`
		Linux        struct {
			MountExtensions struct {
				IDMap struct {
					Enabled bool `json:"enabled"`
				} `json:"idmap"`
			} `json:"mountExtensions"`
		} `json:"linux"`
	}
	err := json.Unmarshal(text, &f)
	return features{mapsIDs: f.Linux.MountExtensions.IDMap.Enabled, mountOptions: f.MountOptions}, err
}

// featureBook caches the features of each OCI runtime until its program is replaced.
type featureBook struct {
	mu    sync.Mutex
	known map[string]knownFeatures
}

type knownFeatures struct {
	program os.FileInfo
	features
}

func (b *featureBook) of(ctx context.Context, name string) (features, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	path, err := exec.LookPath(name)
	if err != nil {
		return features{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return features{}, err
	}
	if k, ok := b.known[path]; ok && os.SameFile(k.program, info) && k.program.ModTime().Equal(info.ModTime()) && k.program.Size() == info.Size() {
		return k.features, nil
	}
	out, err := exec.CommandContext(ctx, path, "features").Output()
	if err != nil {
		return features{}, fmt.Errorf("cannot read the features of %s: %w", path, err)
	}
	f, err := parseFeatures(out)
	if err != nil {
		return features{}, fmt.Errorf("cannot read the features of %s: %w", path, err)
	}
	if b.known == nil {
		b.known = map[string]knownFeatures{}
	}
	b.known[path] = knownFeatures{program: info, features: f}
	return f, nil
}

// SupportsRecursiveReadOnly reports whether a runtime supports recursive read-only mounts.
func (r *Runtimes) SupportsRecursiveReadOnly(ctx context.Context, rt Runtime) bool {
	if err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{}); errors.Is(err, unix.ENOSYS) {
		return false
	}
	f, err := r.features.of(ctx, rt.Path)
	return err == nil && slices.Contains(f.mountOptions, "rro")
}

// Runtimes returns all OCI runtimes that may have created containers.
func (r *Runtimes) Runtimes() []Runtime {
	runtimes := []Runtime{r.usual()}
	if r.ShippedRuntime != "" {
		runtimes = append(runtimes, r.shipped())
	}
	for _, handler := range trees.Names(r.Dirs.HandlersDir()) {
		rt, err := r.handled(handler)
		if err != nil {
			r.Log.Warn("read the state directory of a RuntimeClass", "err", err)
			continue
		}
		runtimes = append(runtimes, rt)
	}
	return runtimes
}

// noUserNamespace is the beginning of the kubelet's error for a pod that cannot have a user namespace.
const noUserNamespace = "can't set `spec.hostUsers: false`"

// withoutUsers returns the error for a pod that cannot have a user namespace.
func withoutUsers(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return cause.Wrap(fmt.Errorf("%s, %w", noUserNamespace, err), cause.Cause{Kind: cause.Sandbox, Fault: cause.UserNamespace})
}

// checkUserNamespaces checks that kernel and snapshotter support user namespaces.
func (r *Runtimes) checkUserNamespaces() error {
	if r.Snapshotter != embed.Overlayfs {
		return withoutUsers("snapshotter %s cannot map ids", r.Snapshotter)
	}
	if ok, err := overlayutils.SupportsIDMappedMounts(); err != nil || !ok {
		return errors.Join(withoutUsers("the kernel has no id-mapped overlays"), err)
	}
	return nil
}
