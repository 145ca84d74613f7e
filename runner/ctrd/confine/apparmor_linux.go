package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/pkg/apparmor"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
)

// defaultAppArmor is the default profile of containers, with the name that containerd's CRI plug-in uses.
const defaultAppArmor = "cri-containerd.apparmor.d"

// appArmorFS is where the kernel lists the loaded profiles.
const appArmorFS = "/sys/kernel/security/apparmor/profiles"

// parserTimeout is the timeout of compiling a profile.
const parserTimeout = 30 * time.Second

// appArmor returns the name of the loaded profile for a container, or "". want is nil if the manifest names none: the container
// then gets the default profile where AppArmor is enabled.
func (r *Profiles) appArmor(want *corev1.AppArmorProfile, privileged bool) (string, error) {
	if want != nil && want.Type == corev1.AppArmorProfileTypeUnconfined {
		return "", nil
	}
	if !apparmor.HostSupports() {
		if want == nil {
			return "", nil
		}
		return "", fault.Step(runner.ReasonAppArmor, errors.New("Cannot enforce AppArmor: AppArmor is not enabled on the host")) //nolint:staticcheck // kubelet's words
	}
	if want != nil && want.Type == corev1.AppArmorProfileTypeLocalhost {
		return localAppArmor(want)
	}
	if privileged {
		return "", nil
	}
	defer r.locks.Lock("profile " + defaultAppArmor)()
	if loaded, err := appArmorLoaded(defaultAppArmor); loaded || err != nil {
		return defaultAppArmor, err
	}
	return defaultAppArmor, r.loadAppArmor()
}

// localAppArmor returns a profile that the administrator has loaded.
func localAppArmor(want *corev1.AppArmorProfile) (string, error) {
	if want.LocalhostProfile == nil {
		return "", errors.New("localhostProfile must be set if appArmorProfile type is Localhost")
	}
	name := strings.TrimPrefix(*want.LocalhostProfile, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	loaded, err := appArmorLoaded(name)
	if err == nil && !loaded {
		err = cause.Wrap(
			fmt.Errorf("apparmor profile not found %s", name),
			cause.Cause{Kind: cause.ProfileUnusable, Fault: cause.NotFound, Object: cause.Object{Kind: cause.AppArmor, Name: name}},
		)
	}
	return name, err
}

// appArmorLoaded reports whether the kernel has loaded a profile.
func appArmorLoaded(name string) (bool, error) {
	b, err := os.ReadFile(appArmorFS)
	if err != nil {
		return false, fmt.Errorf("list AppArmor profiles: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		// The format is "name (mode)"; a name may contain spaces.
		if i := strings.LastIndex(line, " ("); i >= 0 && line[:i] == name {
			return true, nil
		}
	}
	return false, nil
}

// loadAppArmor compiles and loads the default profile.
func (r *Profiles) loadAppArmor() error {
	current, err := os.ReadFile("/proc/self/attr/current")
	if err != nil {
		current = nil // as for an unconfined process
	}
	ctx, cancel := context.WithTimeout(context.Background(), parserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "apparmor_parser", "--skip-cache", "--replace")
	cmd.Stdin = strings.NewReader(appArmorProfile(string(current), func(name string) bool {
		_, err := os.Stat(filepath.Join("/etc/apparmor.d", name))
		return err == nil
	}))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load apparmor profile %s: %w: %s", defaultAppArmor, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// appArmorProfile returns the default profile: it allows everything but mounting, writing to host settings in /proc and /sys, and
// access to processes outside. current is the profile of this process; has reports which files of the distribution's policy exist.
func appArmorProfile(current string, has func(string) bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if has("abi/3.0") {
		line("abi <abi/3.0>,")
	}
	if has("tunables/global") {
		line("#include <tunables/global>")
	} else {
		line("@{PROC}=/proc/")
	}
	line("profile %s flags=(attach_disconnected,mediate_deleted) {", defaultAppArmor)
	if has("abstractions/base") {
		line("#include <abstractions/base>")
	}
	for _, rule := range []string{"network", "capability", "file", "umount", "deny mount"} {
		line("%s,", rule)
	}
	peers := []string{"unconfined", "runc", "crun"}
	if own, _, _ := strings.Cut(strings.TrimRight(current, "\x00\n"), " ("); own != "" && own != "unconfined" {
		peers = append(peers, own)
	}
	for _, peer := range peers {
		line("signal (receive) peer=%s,", peer)
	}
	line("signal (send, receive) peer=%s,", defaultAppArmor)
	line("ptrace (trace, tracedby, read, readby) peer=%s,", defaultAppArmor)
	// The language has no "all but": each rule has one letter more of what stays allowed, which are the directories of processes,
	// /proc/sys/kernel/shm* and /sys/fs/cgroup.
	for _, path := range []string{
		"[^0-9s]", "s[^y]", "sy[^s]", "sys[^/]", "sys/[^k]", "sys/k[^e]", "sys/ke[^r]", "sys/kernel/[^s]", "sys/kernel/s[^h]", "sys/kernel/sh[^m]",
	} {
		line("deny @{PROC}/%s** w,", path)
	}
	for _, path := range []string{"[^f]", "f[^s]", "fs/[^c]", "fs/c[^g]", "fs/cg[^r]"} {
		line("deny /sys/%s** wklx,", path)
	}
	line("deny @{PROC}/{sysrq-trigger,kcore} rwklx,")
	line("deny /sys/{firmware,devices/virtual/powercap,kernel/security}/** rwklx,")
	line("}")
	return b.String()
}
