package confine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/spec/spectest"
)

// unconfined asks for no AppArmor profile, so that the result does not depend on the machine.
func unconfined(seccomp *corev1.SeccompProfile, privileged bool) func(*corev1.Pod, *corev1.Container) {
	return func(_ *corev1.Pod, c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{
			SeccompProfile: seccomp, AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
		}
		if privileged {
			c.SecurityContext.Privileged = new(true)
		}
	}
}

func local(name string) *corev1.SeccompProfile {
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &name}
}

func TestTheSeccompProfileOfAContainer(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own.json"), []byte(`{"defaultAction": "SCMP_ACT_LOG"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	runtimeDefault := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	for name, tt := range map[string]struct {
		profile              *corev1.SeccompProfile
		privileged, defaults bool
		want                 specs.LinuxSeccompAction // "": none
	}{
		"none":                           {},
		"none, with another default":     {defaults: true, want: specs.ActErrno},
		"the runtime's":                  {profile: runtimeDefault, want: specs.ActErrno},
		"a file":                         {profile: local("own.json"), want: specs.ActLog},
		"unconfined":                     {profile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}, defaults: true},
		"of a privileged container none": {profile: runtimeDefault, privileged: true, defaults: true},
	} {
		p := &Profiles{SeccompProfileRoot: dir, SeccompDefault: tt.defaults}
		s := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}, Linux: &specs.Linux{}}
		in := spectest.Input(spectest.Pod(unconfined(tt.profile, tt.privileged)), "app")
		if err := p.AddProfiles(s, in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := specs.LinuxSeccompAction("")
		if s.Linux.Seccomp != nil {
			got = s.Linux.Seccomp.DefaultAction
		}
		if got != tt.want || s.Process.ApparmorProfile != "" {
			t.Errorf("%s: seccomp %q, want %q; AppArmor %q", name, got, tt.want, s.Process.ApparmorProfile)
		}
	}
}

// TestAPodWhoseProfileIsMissingIsRefusedBeforeItIsCreated: the error names the container, for `monopod why`.
func TestAPodWhoseProfileIsMissingIsRefusedBeforeItIsCreated(t *testing.T) {
	p := &Profiles{SeccompProfileRoot: t.TempDir()}
	for name, profile := range map[string]*corev1.SeccompProfile{"missing": local("none.json"), "outside": local("../own.json"), "no path": {Type: corev1.SeccompProfileTypeLocalhost}} {
		err := p.CheckProfiles(spectest.Input(spectest.Pod(unconfined(profile, false)), "app"))
		if step, ok := errors.AsType[*runner.StepError](err); !ok || step.Reason != runner.ReasonCreateContainerError {
			t.Errorf("%s: %v", name, err)
		}
		if c := cause.Of(err); name == "missing" && (c.Container != "app" || c.Kind != cause.ProfileUnusable) {
			t.Errorf("%s: cause %+v", name, c)
		}
	}
	if err := p.CheckProfiles(spectest.Input(spectest.Pod(unconfined(nil, false)), "app")); err != nil {
		t.Errorf("without a profile: %v", err)
	}
}
