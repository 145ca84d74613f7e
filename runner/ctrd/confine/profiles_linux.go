// Package confine finds and loads what confines a container besides capabilities: seccomp, AppArmor and SELinux profiles. It must
// not decide which profile a container gets; the manifest and runner/spec do.
package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/regular"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/locks"
	"monopod/runner/spec"
	"monopod/runner/spec/build"
)

// Profiles confines containers with seccomp, AppArmor and SELinux.
type Profiles struct {
	Dirs layout.Dirs
	// SeccompProfileRoot holds the profiles of type Localhost.
	SeccompProfileRoot string
	// SeccompDefault applies RuntimeDefault to containers without a profile.
	SeccompDefault bool
	Log            *slog.Logger

	locks locks.ByKey
}

// AddProfiles adds seccomp, AppArmor and SELinux profiles to a spec.
func (r *Profiles) AddProfiles(s *specs.Spec, in spec.Input) error {
	var err error
	switch p := build.SeccompFor(in.Pod, in.Container, r.SeccompDefault); p.Type {
	case corev1.SeccompProfileTypeUnconfined:
	case corev1.SeccompProfileTypeLocalhost:
		s.Linux.Seccomp, err = r.localSeccomp(p)
	default:
		s.Linux.Seccomp = seccomp.DefaultProfile(s)
	}
	if err == nil {
		s.Process.ApparmorProfile, err = r.appArmor(build.AppArmorFor(in.Pod, in.Container))
	}
	if c := cause.Of(err); c.Kind != "" {
		c.Container = in.Container
		err = cause.Wrap(err, c)
	}
	return fault.Step(runner.ReasonCreateContainerError, err)
}

// CheckProfiles reports whether AddProfiles will succeed.
func (r *Profiles) CheckProfiles(in spec.Input) error {
	if _, err := r.labels(in); err != nil {
		return fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	return r.AddProfiles(&specs.Spec{
		Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}, Linux: &specs.Linux{},
	}, in)
}

// maxProfile is the maximum size of a seccomp profile: Linux has some 400 system calls.
const maxProfile = 4 << 20

// localSeccomp reads a profile of the host: JSON in the format of linux.seccomp in an OCI spec.
func (r *Profiles) localSeccomp(p corev1.SeccompProfile) (*specs.LinuxSeccomp, error) {
	if p.LocalhostProfile == nil || !filepath.IsLocal(*p.LocalhostProfile) {
		return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost, to a path below the profiles' directory")
	}
	path := filepath.Join(r.SeccompProfileRoot, *p.LocalhostProfile)
	profile, err := readSeccomp(path)
	if err != nil {
		c := cause.Cause{Kind: cause.ProfileUnusable, Object: cause.Object{Kind: cause.Seccomp, Name: path}}
		if errors.Is(err, fs.ErrNotExist) {
			c.Fault = cause.NotFound
		}
		return nil, cause.Wrap(err, c)
	}
	return profile, nil
}

func readSeccomp(path string) (*specs.LinuxSeccomp, error) {
	b, err := regular.ReadFile(path, maxProfile)
	if err != nil {
		return nil, fmt.Errorf("cannot load seccomp profile: %w", err)
	}
	profile := &specs.LinuxSeccomp{}
	if err := json.Unmarshal(b, profile); err != nil {
		return nil, fmt.Errorf("cannot decode seccomp profile %s: %w", path, err)
	}
	if profile.DefaultAction == "" {
		return nil, fmt.Errorf("seccomp profile %s has no defaultAction", path)
	}
	return profile, nil
}
