package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/containerd/api/types/task"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod/internal/tree"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/record"
)

// Root opens the root directory of a running container, with all its mounts, and returns the user that a command would run as. The
// directory is opened with O_PATH.
func (r *Processes) Root(ctx context.Context, key manifests.Key, id string) (*os.File, tree.User, error) {
	rec := r.Records.Find(key, runner.Action{ContainerID: id})
	if rec == nil || id == "" {
		return nil, tree.User{}, fmt.Errorf("container %q of pod %s does not exist", id, key)
	}
	ctx = r.WithNamespace(ctx)
	t, err := r.Records.Task(ctx, rec.ID)
	if err != nil {
		return nil, tree.User{}, err
	}
	if t == nil || record.StatusOf(t) != task.Status_RUNNING {
		return nil, tree.User{}, fmt.Errorf("container %s of pod %s is not running", rec.Meta.Name, key)
	}
	s, err := r.Records.SpecOf(ctx, rec.ID)
	if err != nil {
		return nil, tree.User{}, err
	}
	root, err := rootOf(int(t.Pid), rec.ID)
	return root, userOf(s), err
}

// rootOf opens the root directory of a process that belongs to the container.
func rootOf(pid int, container string) (*os.File, error) {
	process, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid))) // this handle never refers to another process
	if err != nil {
		return nil, err
	}
	defer process.Close()
	open := func(name string, flags int) (*os.File, error) {
		fd, err := unix.Openat(int(process.Fd()), name, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("%s of process %d: %w", name, pid, err)
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	root, err := open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	cgroup, err := open("cgroup", unix.O_RDONLY)
	if err == nil {
		var b []byte
		b, err = io.ReadAll(cgroup)
		_ = cgroup.Close()
		if err == nil && !inCgroup(string(b), container) {
			err = errors.New("the container has exited")
		}
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// userOf returns the user that the process of a container was started as; commands run as the same.
func userOf(s *specs.Spec) tree.User {
	p := s.Process
	var uids, gids []specs.LinuxIDMapping
	if s.Linux != nil {
		uids, gids = s.Linux.UIDMappings, s.Linux.GIDMappings
	}
	u := tree.User{UID: onMachine(uids, p.User.UID), GID: onMachine(gids, p.User.GID)}
	for _, g := range p.User.AdditionalGids {
		u.Groups = append(u.Groups, onMachine(gids, g))
	}
	if c := p.Capabilities; c != nil {
		has := c.Effective
		if p.User.UID != 0 { // a process that changes its user keeps these
			has = c.Ambient
		}
		for name, bit := range map[string]int{
			"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
			"CAP_FOWNER": unix.CAP_FOWNER, "CAP_FSETID": unix.CAP_FSETID,
		} {
			if slices.Contains(has, name) {
				u.Capabilities |= 1 << bit
			}
		}
	}
	return u
}

// idNobody is what unmapped ids are shown as.
const idNobody = 65534

// onMachine returns the host id of an id in a container.
func onMachine(mappings []specs.LinuxIDMapping, id uint32) int {
	for _, m := range mappings {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return int(m.HostID + id - m.ContainerID)
		}
	}
	if len(mappings) > 0 {
		return idNobody
	}
	return int(id)
}
