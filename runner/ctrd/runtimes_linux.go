package ctrd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"monopod/manifests"
)

// ociRuntime is a program that makes containers, and the directory in which it keeps what it knows about them: two
// programs do not understand each other's notes.
type ociRuntime struct{ path, root string }

// handlersDir holds the directories of the runtimes of RuntimeClasses.
func (r *Runtime) handlersDir() string { return r.path("handlers") }

// usual is the OCI runtime of pods that need nothing special.
func (r *Runtime) usual() ociRuntime { return ociRuntime{path: r.cfg.OCIRuntime, root: r.path("runc")} }

// shipped is the one that came with monopod, which may be newer; its path is empty when none did.
func (r *Runtime) shipped() ociRuntime {
	return ociRuntime{path: r.cfg.ShippedRuntime, root: r.path("runc-shipped")}
}

// handled is the OCI runtime of a RuntimeClass.
func (r *Runtime) handled(handler string) (ociRuntime, error) {
	find := r.cfg.Handlers
	if find == nil {
		return ociRuntime{}, fmt.Errorf("there is no OCI runtime for handler %q", handler)
	}
	path, err := find(handler)
	return ociRuntime{path: path, root: r.path("handlers", handler)}, err
}

// runtimeFor chooses the OCI runtime of a pod: that of its RuntimeClass, else the usual one, unless only the shipped one
// can do what the pod needs.
func (r *Runtime) runtimeFor(ctx context.Context, handler string, users bool) (ociRuntime, error) {
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
	if err != nil && r.cfg.ShippedRuntime != "" && r.mapsUsers(ctx, r.shipped()) == nil {
		return r.shipped(), nil
	}
	return r.usual(), err
}

// runtimeOf is the OCI runtime for the containers of a sandbox.
func (r *Runtime) runtimeOf(ctx context.Context, sb *sandboxRecord) (ociRuntime, error) {
	return r.runtimeFor(ctx, sb.Labels.Handler, sb.Labels.FirstID > 0)
}

// checkRuntime resolves the RuntimeClass of a pod, and sees to it that its runtime is there and can do what it needs.
func (r *Runtime) checkRuntime(ctx context.Context, pod *manifests.Pod) (manifests.Runtime, error) {
	class, err := manifests.RuntimeOf(pod)
	if err != nil {
		return class, err
	}
	if ownUsers(pod.Object) {
		if err := r.checkUserNamespaces(); err != nil {
			return class, err
		}
	}
	_, err = r.runtimeFor(ctx, class.Handler, ownUsers(pod.Object))
	if err != nil && class.Handler != "" {
		err = fmt.Errorf("RuntimeClass %q: %w", *pod.Object.Spec.RuntimeClassName, err)
	}
	return class, err
}

// mapsUsers says whether a runtime can run containers in user namespaces.
func (r *Runtime) mapsUsers(ctx context.Context, rt ociRuntime) error {
	f, err := r.features.of(ctx, rt.path)
	switch {
	case err != nil:
		return fmt.Errorf("%s, %w", noUserNamespace, err)
	case !f.mapsIDs:
		return fmt.Errorf("%s, runtime does not support user namespaces: %s has no id-mapped mounts; runc has them from 1.2 on", noUserNamespace, rt.path)
	}
	return nil
}

// features are what an OCI runtime says about itself, as far as it matters here.
type features struct {
	// mapsIDs: it maps ids of mounts.
	mapsIDs bool
	// mountOptions are those it knows.
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

// featureBook asks each OCI runtime once, when somebody wants to know, and again when its program has been replaced.
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
		return features{}, fmt.Errorf("%s does not tell what it can: %w", path, err)
	}
	f, err := parseFeatures(out)
	if err != nil {
		return features{}, fmt.Errorf("%s does not tell what it can: %w", path, err)
	}
	if b.known == nil {
		b.known = map[string]knownFeatures{}
	}
	b.known[path] = knownFeatures{program: info, features: f}
	return f, nil
}

// readsOnlyRecursively says whether mounts can be made read-only with all below them.
func (r *Runtime) readsOnlyRecursively(ctx context.Context, rt ociRuntime) bool {
	if err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{}); errors.Is(err, unix.ENOSYS) {
		return false
	}
	f, err := r.features.of(ctx, rt.path)
	return err == nil && slices.Contains(f.mountOptions, "rro")
}
