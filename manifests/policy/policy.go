// Package policy decides what the pods of a source may ask for beyond being valid: Pod Security Standard, sysctls, critical priorities.
//
// It must not validate, and it knows nothing of what the machine has room for.
package policy

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/manifests/validate/container"
)

// Policy is what the operator of a node allows valid pods to do. The zero Policy allows what a node allows without configuration.
type Policy struct {
	// PodSecurity is the Pod Security Standard that every pod must meet: privileged (or empty: no demands),
	// baseline or restricted.
	PodSecurity string
	// AllowedUnsafeSysctls are the sysctls that pods may set besides the safe ones: names, or prefixes that end with "*".
	AllowedUnsafeSysctls []string
	// RefuseCritical keeps pods from being more important than all others: from the system-* priority classes, from priorities
	// above those that classes may have, and from the annotation monopod.dev/protected. It keeps classes from being the default for all.
	RefuseCritical bool
	// NamespaceAccess is the API access of pods without their own annotation, by namespace: values of manifests.AnnotationAPIAccess. Pods
	// that must meet a Pod Security Standard get no access.
	NamespaceAccess map[string]string
	// Rejects treats pods as valid that an API server accepts but a kubelet rejects: those with forbidden sysctls or for a different
	// operating system. They are never started. Workloads with such pods are invalid.
	Rejects bool
	// HelmHooks makes hooks of Helm run like other pods and workloads.
	HelmHooks bool
	// Namespaces are those in which the source may define objects; empty: in any.
	Namespaces []string
}

// PodSecurityLevels are the Pod Security Standards, the most lenient first.
func PodSecurityLevels() []string {
	return []string{string(api.LevelPrivileged), string(api.LevelBaseline), string(api.LevelRestricted)}
}

// CheckUnsafeSysctl returns an error, worded as by a kubelet, if a pattern is not valid in AllowedUnsafeSysctls.
func CheckUnsafeSysctl(pattern string) error {
	name := strings.TrimSuffix(pattern, "*")
	switch {
	case !container.SysctlName.MatchString(strings.TrimSuffix(name, ".")) && name != "kernel.shm" && name != "kernel.msg":
		return fmt.Errorf("sysctl %q must have at most %d characters and match %s, with an optional * at the end", pattern, container.LongestSysctl, container.SysctlName)
	case container.SysctlNamespace(dotted(pattern)) == "":
		return fmt.Errorf("the sysctls %q are not known to be namespaced", pattern)
	}
	return nil
}

// Violations are the problems of a valid pod that this node does not let it have.
func (p Policy) Violations(pod *corev1.Pod, it document.Item) []document.Problem {
	return slices.Concat(p.forbiddenSysctls(pod, it), p.podSecurity(pod, it), p.critical(pod, it))
}

// Reasons of a kubelet for rejected pods: forbidden sysctls, and a different operating system.
const (
	ReasonSysctl = "SysctlForbidden"
	ReasonPodOS  = "PodOSNotSupported"
)

// OfPods returns the policy for a pod, as opposed to a pod template, and why the pod is never started; nil if it may start.
func (p Policy) OfPods(pod *corev1.Pod) (Policy, *manifests.Rejection) {
	if !p.Rejects {
		return p, nil
	}
	all := p
	all.AllowedUnsafeSysctls = []string{"*"}
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return all, &manifests.Rejection{Reason: ReasonPodOS, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	for _, name := range p.forbidden(pod) {
		return all, &manifests.Rejection{Reason: ReasonSysctl, Message: forbiddenText(name)}
	}
	return all, nil
}

// critical refuses the fields that would give a pod precedence over those of other sources when the machine runs short of a resource.
func (p Policy) critical(pod *corev1.Pod, it document.Item) []document.Problem {
	if !p.RefuseCritical {
		return nil
	}
	const hint = "remove it, or set criticalPods: true for the source in the configuration"
	var found []document.Problem
	for _, c := range Critical(pod) {
		found = append(found, document.Problem{Path: it.Path(c.Path), Msg: "pods of this source may not be " + c.Text, Hint: hint})
	}
	return found
}

// Precedence is a field that gives a pod precedence over all others when the machine runs short of a resource.
type Precedence struct {
	Path string
	// Text completes the sentence "the pod is".
	Text string
}

// Critical returns the fields of a pod that give it precedence over all others.
func Critical(pod *corev1.Pod) []Precedence {
	var found []Precedence
	if name := pod.Spec.PriorityClassName; name == manifests.NodeCritical || name == manifests.ClusterCritical {
		found = append(found, Precedence{"spec.priorityClassName", "critical, as with " + name})
	}
	if n := pod.Spec.Priority; n != nil && *n > manifests.HighestPriority {
		found = append(found, Precedence{"spec.priority", fmt.Sprintf("critical: %d is above %d, the highest that a class may have", *n, manifests.HighestPriority)})
	}
	if manifests.Protected(pod) {
		found = append(found, Precedence{"metadata.annotations[" + manifests.AnnotationProtected + "]", "protected from eviction"})
	}
	return found
}

// AccessIn returns the API access of pods of a namespace; empty if none.
func (p Policy) AccessIn(namespace string) string {
	if p.Privileged() {
		return p.NamespaceAccess[namespace]
	}
	return ""
}

// Privileged reports whether pods need not meet a Pod Security Standard.
func (p Policy) Privileged() bool {
	return p.PodSecurity == "" || p.PodSecurity == string(api.LevelPrivileged)
}

// APIAccess refuses pods that use the API of this machine where pods may not be privileged: the API would give them more permissions.
func (p Policy) APIAccess(path string) []document.Problem {
	if p.Privileged() {
		return nil
	}
	return []document.Problem{{
		Path: path, Msg: fmt.Sprintf("violates PodSecurity %q: pods of this source may not use the API of this machine", p.PodSecurity),
		Hint: "remove the annotation, or define the pod in a source with podSecurity privileged",
	}}
}

// DefaultForAll refuses a class that would count for what names none, also in other sources: a source that may not be critical must not decide that.
func (p Policy) DefaultForAll(isDefault bool, it document.Item, path, what string) []document.Problem {
	if !p.RefuseCritical || !isDefault {
		return nil
	}
	return []document.Problem{{
		Path: it.Path(path), Msg: "a class of this source may not be the default of all " + what + ", which affects other sources",
		Hint: "name the class in each object that needs it, or set criticalPods: true for the source in the configuration",
	}}
}

// VolumeViolations are the problems of a PersistentVolume whose source a pod of the same origin might not mount itself: a
// claim would give it to that pod.
func (p Policy) VolumeViolations(v *corev1.PersistentVolume, it document.Item) []document.Problem {
	s := &v.Spec.PersistentVolumeSource
	kind := ""
	switch {
	case p.PodSecurity == "" || p.PodSecurity == string(api.LevelPrivileged):
	case s.HostPath != nil:
		kind = "hostPath"
	case s.Local != nil:
		kind = "local"
	case p.PodSecurity == string(api.LevelRestricted) && s.NFS != nil:
		kind = "nfs"
	case p.PodSecurity == string(api.LevelRestricted) && s.ISCSI != nil:
		kind = "iscsi"
	case HostOptions(v) != "":
		return []document.Problem{{
			Path: it.Path("spec.mountOptions"), Msg: fmt.Sprintf("violates PodSecurity %q: %s", p.PodSecurity, HostOptions(v)),
			Hint: "define the PersistentVolume in a source of the administrator",
		}}
	}
	if kind == "" {
		return nil
	}
	return []document.Problem{{
		Path: it.Path("spec." + kind), Msg: fmt.Sprintf("violates PodSecurity %q: pods of this source may not use %s volumes, not even through claims", p.PodSecurity, kind),
		Hint: "define the PersistentVolume in a source with podSecurity privileged",
	}}
}

// Outside is the problem of an object in a namespace in which its source may define none. An object of the whole machine has no namespace.
func (p Policy) Outside(source, namespace string, it document.Item) []document.Problem {
	if len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace) {
		return nil
	}
	list := strings.Join(p.Namespaces, ", ")
	if namespace == "" {
		return []document.Problem{{
			Path: it.Path("kind"), Msg: fmt.Sprintf("source %s may define objects in the namespaces %s only, and this one belongs to the whole machine", source, list),
			Hint: "define it in another source, or remove " + source + " from namespaces in the configuration",
		}}
	}
	return []document.Problem{{
		Path: it.Path("metadata.namespace"), Msg: fmt.Sprintf("source %s may not define objects in namespace %s", source, namespace),
		Hint: fmt.Sprintf("write one of %s, or allow it by namespaces: {%s: [%s, %s]} in the configuration", list, source, list, namespace),
	}}
}

// HostOptions returns why mount options of a PersistentVolume could reach beyond its volume; empty if they cannot. File systems of disks have
// options that name other devices, such as logdev of xfs.
func HostOptions(v *corev1.PersistentVolume) string {
	if v.Spec.ISCSI != nil && len(v.Spec.MountOptions) > 0 {
		return "mount options of iscsi volumes can name devices of the machine"
	}
	for option := range strings.SplitSeq(strings.Join(v.Spec.MountOptions, ","), ",") {
		if slices.Contains([]string{"bind", "rbind", "move", "remount"}, strings.TrimSpace(option)) {
			return fmt.Sprintf("the mount option %s can name directories of the machine", option)
		}
	}
	return ""
}

// safeSysctls are those of Kubernetes 1.37 on any kernel from 4.15 on.
func safeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced",
		"net.ipv4.ip_local_port_range",
		"net.ipv4.ip_local_reserved_ports",
		"net.ipv4.ip_unprivileged_port_start",
		"net.ipv4.ping_group_range",
		"net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_intvl",
		"net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_notsent_lowat",
		"net.ipv4.tcp_rmem",
		"net.ipv4.tcp_slow_start_after_idle",
		"net.ipv4.tcp_syncookies",
		"net.ipv4.tcp_wmem",
	}
}

func (p Policy) forbiddenSysctls(pod *corev1.Pod, it document.Item) []document.Problem {
	var found []document.Problem
	for i, name := range p.forbidden(pod) {
		at := document.Problem{
			Path: it.Path("spec.securityContext.sysctls[" + strconv.Itoa(i) + "].name"),
			Msg:  ReasonSysctl + ": " + forbiddenText(name),
		}
		if container.SysctlNamespace(dotted(name)) == "" {
			at.Hint = "it applies to the whole machine: set it there"
		} else {
			at.Hint = "add it to allowedUnsafeSysctls in the configuration"
		}
		found = append(found, at)
	}
	return found
}

// forbidden yields the forbidden sysctls of a pod, with their indices.
func (p Policy) forbidden(pod *corev1.Pod) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if pod.Spec.SecurityContext == nil {
			return
		}
		for i, s := range pod.Spec.SecurityContext.Sysctls {
			name := dotted(s.Name)
			allowed := slices.Contains(safeSysctls(), name) || slices.ContainsFunc(p.AllowedUnsafeSysctls, func(pattern string) bool { return matches(pattern, name) })
			if !allowed && !yield(i, s.Name) {
				return
			}
		}
	}
}

func forbiddenText(name string) string {
	return fmt.Sprintf("forbidden sysctl: %q not allowlisted", name)
}

// matches reports whether a name equals the pattern or begins with its prefix.
func matches(pattern, name string) bool {
	prefix, isPrefix := strings.CutSuffix(dotted(pattern), "*")
	return prefix == name || isPrefix && strings.HasPrefix(name, prefix)
}

// dotted spells the name of a sysctl with dots between its parts.
func dotted(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}

// evaluator holds the checks of the Pod Security Standards. It is the same for ever.
var evaluator = sync.OnceValue(func() policy.Evaluator {
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(fmt.Sprintf("the checks of the Pod Security Standards: %v", err))
	}
	return e
})

// standardVersion is the version of the Pod Security Standards: that of the Kubernetes that monopod follows.
func standardVersion() api.Version { return api.MajorMinorVersion(1, 37) }

// Forbidden returns the violations of a Pod Security Standard in a pod, worded as in Kubernetes; empty if the pod complies.
func Forbidden(level string, meta *metav1.ObjectMeta, spec *corev1.PodSpec) []string {
	standard := api.LevelVersion{Level: api.Level(level), Version: standardVersion()}
	if standard.Level == "" || standard.Level == api.LevelPrivileged {
		return nil
	}
	var found []string
	for _, r := range evaluator().EvaluatePod(standard, meta, spec) {
		if r.Allowed {
			continue
		}
		msg := fmt.Sprintf("violates PodSecurity %q: %s", standard, r.ForbiddenReason)
		if r.ForbiddenDetail != "" {
			msg += " (" + r.ForbiddenDetail + ")"
		}
		found = append(found, msg)
	}
	return found
}

func (p Policy) podSecurity(pod *corev1.Pod, it document.Item) []document.Problem {
	var found []document.Problem
	for _, msg := range Forbidden(p.PodSecurity, &pod.ObjectMeta, &pod.Spec) {
		found = append(found, document.Problem{Path: it.Path("spec"), Msg: msg, AtKey: true})
	}
	return found
}
