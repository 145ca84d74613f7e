package container

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
)

// securityChecker checks security contexts, of containers and of pods.
type securityChecker struct{ *check.Checker }

// Security returns the checks of security contexts, which report to c.
func Security(c *check.Checker) securityChecker { return securityChecker{c} }

// security checks the security context of a container.
func (c securityChecker) security(path *field.Path, sc *corev1.SecurityContext) {
	if sc == nil {
		return
	}
	c.UserID(path.Child("runAsUser"), sc.RunAsUser)
	c.groupID(path.Child("runAsGroup"), sc.RunAsGroup)
	if sc.ProcMount != nil {
		check.OneOf(c.Checker, path.Child("procMount"), *sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *sc.ProcMount == corev1.UnmaskedProcMount && (c.Pod.Spec.HostUsers == nil || *c.Pod.Spec.HostUsers) {
			c.Invalid(path.Child("procMount"), sc.ProcMount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	c.seccomp(path.Child("seccompProfile"), sc.SeccompProfile)
	c.appArmor(path.Child("appArmorProfile"), sc.AppArmorProfile)
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return
	}
	if sc.Privileged != nil && *sc.Privileged {
		c.Invalid(path, false, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
	}
	if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
		c.Invalid(path, false, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
	}
}

// PodSecurity checks the security context of the pod.
func (c securityChecker) PodSecurity(path *field.Path) {
	sc, spec := c.Pod.Spec.SecurityContext, &c.Pod.Spec
	c.UserID(path.Child("runAsUser"), sc.RunAsUser)
	c.groupID(path.Child("runAsGroup"), sc.RunAsGroup)
	c.groupID(path.Child("fsGroup"), sc.FSGroup)
	for i := range sc.SupplementalGroups {
		c.groupID(path.Child("supplementalGroups").Index(i), &sc.SupplementalGroups[i])
	}
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace && spec.HostPID {
		c.Invalid(path.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	c.sysctls(path.Child("sysctls"), sc.Sysctls)
	if sc.FSGroupChangePolicy != nil {
		check.OneOf(c.Checker, path.Child("fsGroupChangePolicy"), *sc.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	}
	if sc.SupplementalGroupsPolicy != nil {
		check.OneOf(c.Checker, path.Child("supplementalGroupsPolicy"), *sc.SupplementalGroupsPolicy,
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	if sc.SELinuxChangePolicy != nil {
		check.OneOf(c.Checker, path.Child("seLinuxChangePolicy"), *sc.SELinuxChangePolicy,
			corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
	}
	c.seccomp(path.Child("seccompProfile"), sc.SeccompProfile)
	c.appArmor(path.Child("appArmorProfile"), sc.AppArmorProfile)
}

func (c securityChecker) groupID(path *field.Path, id *int64) {
	if id != nil {
		c.Invalid(path, *id, validation.IsValidGroupID(*id)...)
	}
}

func (c securityChecker) seccomp(path *field.Path, profile *corev1.SeccompProfile) {
	if profile == nil {
		return
	}
	if profile.Type == "" {
		c.Required(path.Child("type"), "type is required when seccompProfile is set")
	} else {
		check.OneOf(c.Checker, path.Child("type"), profile.Type,
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	at := path.Child("localhostProfile")
	switch local := profile.LocalhostProfile; {
	case profile.Type != corev1.SeccompProfileTypeLocalhost && local != nil:
		c.Invalid(at, *local, "can only be set when seccomp type is Localhost")
	case profile.Type == corev1.SeccompProfileTypeLocalhost && local == nil:
		c.Required(at, "must be set when seccomp type is Localhost")
	case local != nil:
		c.DescendingPath(at, *local)
	}
}

func (c securityChecker) appArmor(path *field.Path, profile *corev1.AppArmorProfile) {
	if profile == nil {
		return
	}
	if profile.Type == "" {
		c.Required(path.Child("type"), "type is required when appArmorProfile is set")
		return
	}
	check.OneOf(c.Checker, path.Child("type"), profile.Type,
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	const longest = 4095
	at := path.Child("localhostProfile")
	switch local := profile.LocalhostProfile; {
	case profile.Type == corev1.AppArmorProfileTypeRuntimeDefault || profile.Type == corev1.AppArmorProfileTypeUnconfined:
		if local != nil {
			c.Invalid(at, *local, "can only be set when AppArmor type is Localhost")
		}
	case profile.Type != corev1.AppArmorProfileTypeLocalhost:
	case local == nil || *local == "":
		c.Required(at, "must be set when AppArmor type is Localhost")
	case strings.TrimSpace(*local) != *local:
		c.Invalid(at, *local, "must not be padded with whitespace")
	case len(*local) > longest:
		c.Add(field.TooLong(at, "", longest))
	}
}

// ProfilesMatchAnnotations checks that the old way and the new way of naming a profile do not disagree.
func (c securityChecker) ProfilesMatchAnnotations(spec *field.Path) {
	pod := c.Pod.Spec.SecurityContext
	if annotation, ok := c.Pod.Annotations[corev1.SeccompPodAnnotationKey]; ok {
		c.seccompMatches(spec.Child("securityContext", "seccompProfile"), annotation, pod.SeccompProfile)
	}
	for _, container := range c.AllContainers(spec) {
		sc := container.SecurityContext
		if annotation, ok := c.Pod.Annotations[corev1.SeccompContainerAnnotationKeyPrefix+container.Name]; ok && sc != nil {
			c.seccompMatches(container.Path.Child("securityContext", "seccompProfile"), annotation, sc.SeccompProfile)
		}
		profile := pod.AppArmorProfile
		if sc != nil && sc.AppArmorProfile != nil {
			profile = sc.AppArmorProfile
		}
		annotation, ok := c.Pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container.Name]
		if ok && profile != nil && (c.Pod.Spec.OS == nil || c.Pod.Spec.OS.Name != corev1.Windows) {
			c.appArmorMatches(container.Path.Child("securityContext", "appArmorProfile"), annotation, profile)
		}
	}
}

func (c securityChecker) seccompMatches(path *field.Path, annotation string, profile *corev1.SeccompProfile) {
	if profile == nil {
		return
	}
	const differs = "seccomp type in annotation and field must match"
	local, isLocal := strings.CutPrefix(annotation, corev1.SeccompLocalhostProfileNamePrefix)
	switch profile.Type {
	case corev1.SeccompProfileTypeUnconfined:
		if annotation != corev1.SeccompProfileNameUnconfined {
			c.Forbidden(path.Child("type"), differs)
		}
	case corev1.SeccompProfileTypeRuntimeDefault:
		if annotation != corev1.SeccompProfileRuntimeDefault && annotation != corev1.DeprecatedSeccompProfileDockerDefault {
			c.Forbidden(path.Child("type"), differs)
		}
	case corev1.SeccompProfileTypeLocalhost:
		if !isLocal {
			c.Forbidden(path.Child("type"), differs)
		} else if profile.LocalhostProfile == nil || *profile.LocalhostProfile != local {
			c.Forbidden(path.Child("localhostProfile"), "seccomp profile in annotation and field must match")
		}
	}
}

func (c securityChecker) appArmorMatches(path *field.Path, annotation string, profile *corev1.AppArmorProfile) {
	const differs = "apparmor type in annotation and field must match"
	local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch profile.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		if annotation != corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			c.Forbidden(path.Child("type"), differs)
		}
	case corev1.AppArmorProfileTypeRuntimeDefault:
		if annotation != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault {
			c.Forbidden(path.Child("type"), differs)
		}
	case corev1.AppArmorProfileTypeLocalhost:
		if !isLocal {
			c.Forbidden(path.Child("type"), differs)
		} else if profile.LocalhostProfile == nil || *profile.LocalhostProfile != local {
			c.Forbidden(path.Child("localhostProfile"), "apparmor profile in annotation and field must match")
		}
	}
}

const (
	sysctlFormat = "([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	// LongestSysctl is how many characters the name of a sysctl may have.
	LongestSysctl   = 253
	sysctlFormatMsg = "must have at most %d characters and match regex %s"
)

// SysctlName matches the names that a sysctl can have.
var SysctlName = regexp.MustCompile("^" + sysctlFormat + "$")

func (c securityChecker) sysctls(path *field.Path, sysctls []corev1.Sysctl) {
	names := map[string]bool{}
	for i, s := range sysctls {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			c.Required(at, "")
		case len(s.Name) > LongestSysctl || !SysctlName.MatchString(s.Name):
			c.Invalid(at, s.Name, fmt.Sprintf(sysctlFormatMsg, LongestSysctl, SysctlName))
		case names[s.Name]:
			c.Add(field.Duplicate(at, s.Name))
		}
		names[s.Name] = true
		switch namespace := SysctlNamespace(s.Name); {
		case namespace == "net" && c.Pod.Spec.HostNetwork:
			c.Invalid(at, s.Name, "may not be specified when 'hostNetwork' is true")
		case namespace == "ipc" && c.Pod.Spec.HostIPC:
			c.Invalid(at, s.Name, "may not be specified when 'hostIPC' is true")
		}
	}
}

// SysctlNamespace returns the kind of namespace that a sysctl belongs to, empty for those of the whole machine.
func SysctlNamespace(name string) string {
	// Either sign may separate the parts; the first one in the name decides which does.
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
		name = strings.NewReplacer("/", ".", ".", "/").Replace(name)
	}
	name, _, _ = strings.Cut(name, "*")
	switch {
	case strings.HasPrefix(name, "net."):
		return "net"
	case strings.HasPrefix(name, "fs.mqueue."):
		return "ipc"
	}
	switch name {
	case "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.shm",
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg":
		return "ipc"
	}
	return ""
}
