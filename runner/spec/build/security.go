package build

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/internal/cause"
	"monopod/runner/spec"
)

// security is what the pod's and the container's security contexts say together; the container's wins.
type security struct {
	user, group     *int64
	nonRoot         bool
	privileged      bool
	readOnlyRoot    bool
	noNewPrivileges bool
	procUnmasked    bool
	add, drop       []corev1.Capability
	seccomp         *corev1.SeccompProfile
}

// effectiveSecurity merges the security contexts.
func effectiveSecurity(pod *corev1.Pod, c *corev1.Container) security {
	var sec security
	if p := pod.Spec.SecurityContext; p != nil {
		sec.user, sec.group, sec.seccomp = p.RunAsUser, p.RunAsGroup, p.SeccompProfile
		sec.nonRoot = ptr.Deref(p.RunAsNonRoot, false)
	}
	s := c.SecurityContext
	if s == nil {
		return sec
	}
	if s.RunAsUser != nil {
		sec.user = s.RunAsUser
	}
	if s.RunAsGroup != nil {
		sec.group = s.RunAsGroup
	}
	if s.RunAsNonRoot != nil {
		sec.nonRoot = *s.RunAsNonRoot
	}
	if s.SeccompProfile != nil {
		sec.seccomp = s.SeccompProfile
	}
	if s.Capabilities != nil {
		sec.add, sec.drop = s.Capabilities.Add, s.Capabilities.Drop
	}
	sec.privileged = ptr.Deref(s.Privileged, false)
	sec.readOnlyRoot = ptr.Deref(s.ReadOnlyRootFilesystem, false)
	sec.noNewPrivileges = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
	sec.procUnmasked = s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount
	return sec
}

// RequestedUser returns what the security contexts ask for: nil means the image's user, or that user's group.
// nonRoot is runAsNonRoot; Spec checks it. A group without a user is fine at both levels (kubelet's sandbox
// fails with one at pod level).
func RequestedUser(pod *corev1.Pod, container string) (uid, gid *int64, nonRoot bool) {
	c, err := spec.FindContainer(pod, container)
	if err != nil {
		return nil, nil, false
	}
	sec := effectiveSecurity(pod, c)
	return sec.user, sec.group, sec.nonRoot
}

// SeccompFor returns the profile to add to a built spec. Nothing set means unconfined, as in the CRI plugin, unless
// the machine gives such containers RuntimeDefault (seccompDefault), and privileged containers never have one. RuntimeDefault is containerd's own profile, made for the container's final
// capabilities; Localhost is a file of the machine.
func SeccompFor(pod *corev1.Pod, container string, defaults bool) corev1.SeccompProfile {
	c, err := spec.FindContainer(pod, container)
	if err != nil {
		return corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	sec := effectiveSecurity(pod, c)
	switch {
	case !sec.privileged && sec.seccomp == nil && defaults:
		return corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	case sec.privileged || sec.seccomp == nil:
		return corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}
	return *sec.seccomp
}

// AppArmorFor returns the AppArmor profile that a container asks for, nil when it names none, and whether it is privileged.
func AppArmorFor(pod *corev1.Pod, container string) (profile *corev1.AppArmorProfile, privileged bool) {
	c, err := spec.FindContainer(pod, container)
	if err != nil {
		return nil, false
	}
	if s := pod.Spec.SecurityContext; s != nil {
		profile = s.AppArmorProfile
	}
	if s := c.SecurityContext; s != nil {
		if s.AppArmorProfile != nil {
			profile = s.AppArmorProfile
		}
		privileged = ptr.Deref(s.Privileged, false)
	}
	return profile, privileged
}

// checkUser refuses root where the manifest says runAsNonRoot, with kubelet's words, and an Input.User that is
// not the requested one.
func checkUser(in spec.Input, c *corev1.Container, sec security) error {
	if sec.user != nil && *sec.user != int64(in.User.UID) {
		return fmt.Errorf("container %s: user resolved to %d instead of %d", c.Name, in.User.UID, *sec.user)
	}
	if sec.group != nil && *sec.group != int64(in.User.GID) {
		return fmt.Errorf("container %s: group resolved to %d instead of %d", c.Name, in.User.GID, *sec.group)
	}
	if !sec.nonRoot {
		return nil
	}
	return cause.Wrap(checkNonRoot(in, c, sec), cause.Cause{Kind: cause.NonRoot})
}

// checkNonRoot returns an error if the user may be root.
func checkNonRoot(in spec.Input, c *corev1.Container, sec security) error {
	where := fmt.Sprintf("(pod: %q, container: %s)", fmt.Sprintf("%s_%s(%s)", in.Pod.Name, in.Pod.Namespace, in.Pod.UID), c.Name)
	if sec.user != nil {
		if *sec.user == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
		}
		return nil
	}
	return checkImageUser(in.Image.User, where)
}

// checkImageUser verifies that an image's user is a number and not root's.
func checkImageUser(user, where string) error {
	name, _, _ := strings.Cut(user, ":")
	if name == "" {
		name = "0"
	}
	uid, err := strconv.ParseInt(name, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", name, where)
	case uid == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	case uid < 0 || uid > math.MaxInt32:
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)) %s", uid, math.MaxInt32, where)
	}
	return nil
}

// groups returns all groups of the process, sorted: the primary one, those of the image (unless the policy is
// Strict), fsGroup and supplementalGroups.
func groups(in spec.Input) []uint32 {
	set := map[uint32]bool{in.User.GID: true}
	p := in.Pod.Spec.SecurityContext
	if p == nil {
		p = &corev1.PodSecurityContext{}
	}
	if p.SupplementalGroupsPolicy == nil || *p.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyStrict {
		for _, g := range in.User.Groups {
			set[g] = true
		}
	}
	if p.FSGroup != nil {
		set[uint32(*p.FSGroup)] = true
	}
	for _, g := range p.SupplementalGroups {
		set[uint32(g)] = true
	}
	return slices.Sorted(maps.Keys(set))
}
