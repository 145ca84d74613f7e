package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/spec"
	"monopod/runner/spec/selinux"
)

// Paths of SELinux.
const (
	selinuxMount  = "/sys/fs/selinux"
	selinuxConfig = "/etc/selinux"
	SelinuxXattr  = "security.selinux"
)

// hasSELinux reports whether SELinux is enabled, enforcing or not.
func hasSELinux() bool {
	var st unix.Statfs_t
	return unix.Statfs(selinuxMount, &st) == nil && uint32(st.Type) == unix.SELINUX_MAGIC
}

// labels returns the SELinux labels of a container that requests any; none on a machine without SELinux, where a kubelet ignores
// them, too.
func (r *Profiles) labels(in spec.Input) (selinux.Labels, error) {
	if selinux.Options(in.Pod, in.Container) == nil {
		return selinux.Labels{}, nil
	}
	if !hasSELinux() {
		r.Log.Warn("seLinuxOptions are ignored: this machine has no SELinux", "pod", in.Pod.Namespace+"/"+in.Pod.Name, "container", in.Container)
		return selinux.Labels{}, nil
	}
	policy, err := readSELinuxPolicy(selinuxConfig)
	if err != nil {
		return selinux.Labels{}, fmt.Errorf("seLinuxOptions: cannot read the SELinux contexts of containers; is container-selinux installed? %w", err)
	}
	return policy.LabelsFor(in.Pod, in.Container)
}

// readSELinuxPolicy reads the contexts of the configured policy.
func readSELinuxPolicy(dir string) (selinux.Policy, error) {
	b, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil {
		return selinux.Policy{}, err
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "SELINUXTYPE="); ok {
			b, err := os.ReadFile(filepath.Join(dir, name, "contexts", "lxc_contexts"))
			return selinux.ParseContexts(string(b)), err
		}
	}
	return selinux.Policy{}, errors.New("no SELINUXTYPE in " + filepath.Join(dir, "config"))
}

// AddLabels adds the labels to a spec, and to our files that it mounts. Host paths and images keep theirs.
func (r *Profiles) AddLabels(ctx context.Context, s *specs.Spec, in spec.Input) error {
	labels, err := r.labels(in)
	if err != nil {
		return fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	s.Process.SelinuxLabel, s.Linux.MountLabel = labels.Process, labels.Mount
	if labels.Mount == "" {
		return nil
	}
	for path := range r.labeled(s, in) {
		if err := Relabel(ctx, path, labels.Mount); err != nil {
			return fault.Step(runner.ReasonCreateContainerError, fmt.Errorf("seLinuxOptions: label %s: %w", path, err))
		}
	}
	return nil
}

// labeled returns the paths that get the label of a container: its mounts from our directories that are not part of an image.
func (r *Profiles) labeled(s *specs.Spec, in spec.Input) map[string]bool {
	paths := map[string]bool{}
	add := func(path string) {
		for _, dir := range []string{r.Dirs.PodsDir(), r.Dirs.Path("shm"), r.Dirs.SecretsDir()} {
			if strings.HasPrefix(path, dir+"/") {
				paths[path] = true
			}
		}
	}
	for _, m := range s.Mounts {
		add(m.Source)
	}
	for _, v := range in.Volumes { // including those with a subPath
		add(v.HostPath)
	}
	return paths
}

// Relabel labels a file, or a directory tree. Containers may write to the tree concurrently: links are not followed out of it, vanished
// files are skipped, and nothing is opened but directories.
func Relabel(ctx context.Context, path, label string) error {
	top, err := foreign.At(path, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	info, err := top.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return foreign.SetXattr(top, SelinuxXattr, label)
	}
	return foreign.Walk(ctx, top, func(_ string, place *os.File) error { return foreign.SetXattr(place, SelinuxXattr, label) })
}
