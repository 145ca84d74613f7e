package validate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// security checks the security context of a container.
func (c *checker) security(path *field.Path, sc *corev1.SecurityContext) {
	if sc == nil {
		return
	}
	c.userID(path.Child("runAsUser"), sc.RunAsUser)
	c.groupID(path.Child("runAsGroup"), sc.RunAsGroup)
	if sc.ProcMount != nil {
		oneOf(c, path.Child("procMount"), *sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *sc.ProcMount == corev1.UnmaskedProcMount && (c.pod.Spec.HostUsers == nil || *c.pod.Spec.HostUsers) {
			c.invalid(path.Child("procMount"), sc.ProcMount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	c.seccomp(path.Child("seccompProfile"), sc.SeccompProfile)
	c.appArmor(path.Child("appArmorProfile"), sc.AppArmorProfile)
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return
	}
	if sc.Privileged != nil && *sc.Privileged {
		c.invalid(path, false, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
	}
	if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
		c.invalid(path, false, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
	}
}

// podSecurity checks the security context of the pod.
func (c *checker) podSecurity(path *field.Path) {
	sc, spec := c.pod.Spec.SecurityContext, &c.pod.Spec
	c.userID(path.Child("runAsUser"), sc.RunAsUser)
	c.groupID(path.Child("runAsGroup"), sc.RunAsGroup)
	c.groupID(path.Child("fsGroup"), sc.FSGroup)
	for i := range sc.SupplementalGroups {
		c.groupID(path.Child("supplementalGroups").Index(i), &sc.SupplementalGroups[i])
	}
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace && spec.HostPID {
		c.invalid(path.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	c.sysctls(path.Child("sysctls"), sc.Sysctls)
	if sc.FSGroupChangePolicy != nil {
		oneOf(c, path.Child("fsGroupChangePolicy"), *sc.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	}
	if sc.SupplementalGroupsPolicy != nil {
		oneOf(c, path.Child("supplementalGroupsPolicy"), *sc.SupplementalGroupsPolicy,
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	if sc.SELinuxChangePolicy != nil {
		oneOf(c, path.Child("seLinuxChangePolicy"), *sc.SELinuxChangePolicy, corev1.SELinuxChangePolicyRecursive)
	}
	c.seccomp(path.Child("seccompProfile"), sc.SeccompProfile)
	c.appArmor(path.Child("appArmorProfile"), sc.AppArmorProfile)
}

func (c *checker) userID(path *field.Path, id *int64) {
	if id != nil {
		c.invalid(path, *id, validation.IsValidUserID(*id)...)
	}
}

func (c *checker) groupID(path *field.Path, id *int64) {
	if id != nil {
		c.invalid(path, *id, validation.IsValidGroupID(*id)...)
	}
}

func (c *checker) seccomp(path *field.Path, profile *corev1.SeccompProfile) {
	if profile == nil {
		return
	}
	if profile.Type == "" {
		c.required(path.Child("type"), "type is required when seccompProfile is set")
	} else {
		oneOf(c, path.Child("type"), profile.Type,
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	at := path.Child("localhostProfile")
	switch local := profile.LocalhostProfile; {
	case profile.Type != corev1.SeccompProfileTypeLocalhost && local != nil:
		c.invalid(at, *local, "can only be set when seccomp type is Localhost")
	case profile.Type == corev1.SeccompProfileTypeLocalhost && local == nil:
		c.required(at, "must be set when seccomp type is Localhost")
	case local != nil:
		c.descendingPath(at, *local)
	}
}

func (c *checker) appArmor(path *field.Path, profile *corev1.AppArmorProfile) {
	if profile == nil {
		return
	}
	if profile.Type == "" {
		c.required(path.Child("type"), "type is required when appArmorProfile is set")
		return
	}
	oneOf(c, path.Child("type"), profile.Type,
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	const longest = 4095
	at := path.Child("localhostProfile")
	switch local := profile.LocalhostProfile; {
	case profile.Type == corev1.AppArmorProfileTypeRuntimeDefault || profile.Type == corev1.AppArmorProfileTypeUnconfined:
		if local != nil {
			c.invalid(at, *local, "can only be set when AppArmor type is Localhost")
		}
	case profile.Type != corev1.AppArmorProfileTypeLocalhost:
	case local == nil || *local == "":
		c.required(at, "must be set when AppArmor type is Localhost")
	case strings.TrimSpace(*local) != *local:
		c.invalid(at, *local, "must not be padded with whitespace")
	case len(*local) > longest:
		c.add(field.TooLong(at, "", longest))
	}
}

// profilesMatchAnnotations checks that the old way and the new way of naming a profile do not disagree.
func (c *checker) profilesMatchAnnotations(spec *field.Path) {
	pod := c.pod.Spec.SecurityContext
	if annotation, ok := c.pod.Annotations[corev1.SeccompPodAnnotationKey]; ok {
		c.seccompMatches(spec.Child("securityContext", "seccompProfile"), annotation, pod.SeccompProfile)
	}
	for _, container := range c.allContainers(spec) {
		sc := container.SecurityContext
		if annotation, ok := c.pod.Annotations[corev1.SeccompContainerAnnotationKeyPrefix+container.Name]; ok && sc != nil {
			c.seccompMatches(container.path.Child("securityContext", "seccompProfile"), annotation, sc.SeccompProfile)
		}
		profile := pod.AppArmorProfile
		if sc != nil && sc.AppArmorProfile != nil {
			profile = sc.AppArmorProfile
		}
		annotation, ok := c.pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container.Name]
		if ok && profile != nil && (c.pod.Spec.OS == nil || c.pod.Spec.OS.Name != corev1.Windows) {
			c.appArmorMatches(container.path.Child("securityContext", "appArmorProfile"), annotation, profile)
		}
	}
}

func (c *checker) seccompMatches(path *field.Path, annotation string, profile *corev1.SeccompProfile) {
	if profile == nil {
		return
	}
	const differs = "seccomp type in annotation and field must match"
	local, isLocal := strings.CutPrefix(annotation, corev1.SeccompLocalhostProfileNamePrefix)
	switch profile.Type {
	case corev1.SeccompProfileTypeUnconfined:
		if annotation != corev1.SeccompProfileNameUnconfined {
			c.forbidden(path.Child("type"), differs)
		}
	case corev1.SeccompProfileTypeRuntimeDefault:
		if annotation != corev1.SeccompProfileRuntimeDefault && annotation != corev1.DeprecatedSeccompProfileDockerDefault {
			c.forbidden(path.Child("type"), differs)
		}
	case corev1.SeccompProfileTypeLocalhost:
		if !isLocal {
			c.forbidden(path.Child("type"), differs)
		} else if profile.LocalhostProfile == nil || *profile.LocalhostProfile != local {
			c.forbidden(path.Child("localhostProfile"), "seccomp profile in annotation and field must match")
		}
	}
}

func (c *checker) appArmorMatches(path *field.Path, annotation string, profile *corev1.AppArmorProfile) {
	const differs = "apparmor type in annotation and field must match"
	local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch profile.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		if annotation != corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			c.forbidden(path.Child("type"), differs)
		}
	case corev1.AppArmorProfileTypeRuntimeDefault:
		if annotation != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault {
			c.forbidden(path.Child("type"), differs)
		}
	case corev1.AppArmorProfileTypeLocalhost:
		if !isLocal {
			c.forbidden(path.Child("type"), differs)
		} else if profile.LocalhostProfile == nil || *profile.LocalhostProfile != local {
			c.forbidden(path.Child("localhostProfile"), "apparmor profile in annotation and field must match")
		}
	}
}

const (
	sysctlFormat    = "([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	LongestSysctl   = 253
	sysctlFormatMsg = "must have at most %d characters and match regex %s"
)

var SysctlName = regexp.MustCompile("^" + sysctlFormat + "$")

func (c *checker) sysctls(path *field.Path, sysctls []corev1.Sysctl) {
	names := map[string]bool{}
	for i, s := range sysctls {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			c.required(at, "")
		case len(s.Name) > LongestSysctl || !SysctlName.MatchString(s.Name):
			c.invalid(at, s.Name, fmt.Sprintf(sysctlFormatMsg, LongestSysctl, SysctlName))
		case names[s.Name]:
			c.add(field.Duplicate(at, s.Name))
		}
		names[s.Name] = true
		switch namespace := SysctlNamespace(s.Name); {
		case namespace == "net" && c.pod.Spec.HostNetwork:
			c.invalid(at, s.Name, "may not be specified when 'hostNetwork' is true")
		case namespace == "ipc" && c.pod.Spec.HostIPC:
			c.invalid(at, s.Name, "may not be specified when 'hostIPC' is true")
		}
	}
}

// SysctlNamespace says in which kind of namespace a sysctl lives, empty for those of the whole machine.
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
