package access

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/manifests"
	"monopod/manifests/policy"
	"monopod/node/kubeapi/kinds"
)

// baseline is the Pod Security Standard for pods written by users who may not create privileged pods.
const baseline = "baseline"

// Hides reports whether an object must not be shown to a user who may read its kind: a Secret defined by a source other than the API.
// applied reports whether the API or `monopod apply` stored the object. A get of a hidden object returns HiddenError; lists and watches
// omit it.
func Hides(u User, p Policy, o kinds.Object, applied bool) bool {
	if _, secret := o.(*corev1.Secret); !secret || applied {
		return false
	}
	allowed, _ := p.Allows(Attributes{User: u, Verb: "get", Resource: "secrets", Subresource: sources, Namespace: o.GetNamespace(), Name: o.GetName()})
	return !allowed
}

// HiddenError returns the 403 error for a get of an object that Hides hides.
func HiddenError(u User, o kinds.Object) error {
	return forbidden("", "secrets", o.GetName(), fmt.Sprintf(
		"User %q cannot get Secrets defined by files or URLs; needs the role admin, or get:secrets/sources in apiServer.rules", u.Name,
	))
}

// Admit returns why a user may not write an object; the verb is used in the message. Pods and pod templates of users who may not create
// privileged pods must meet the Pod Security Standard baseline, and their PersistentVolumes must not be directories of the machine, because
// such a user would be root. Their Services must not take connections of the machine. Nor may these users decide about the pods and claims of
// others: with critical pods and default classes. Pods that use the API must not have more permissions than the user who writes them. The
// error is a 403.
func Admit(u User, p Policy, verb string, o kinds.Object) error {
	if verb == "delete" || verb == "deletecollection" {
		return nil
	}
	if err := AdmitAccess(u, p, verb, o); err != nil {
		return err
	}
	return unlessPrivileged(u, p, verb, o, append(violations(o), precedence(o)...))
}

// AdmitCommands returns why a user may not run commands in a pod: with exec, attach and ephemeral containers. The rules are those of Admit,
// but a critical pod is like any other.
func AdmitCommands(u User, p Policy, verb string, o kinds.Object) error {
	if err := AdmitAccess(u, p, verb, o); err != nil {
		return err
	}
	return unlessPrivileged(u, p, verb, o, violations(o))
}

// AdmitPorts returns why a user may not connect to ports of a pod: those of a pod in the network of the machine include all that listen on
// the loopback addresses of the machine.
func AdmitPorts(u User, p Policy, pod *corev1.Pod) error {
	if !pod.Spec.HostNetwork {
		return nil
	}
	return unlessPrivileged(u, p, "connect to ports of", pod, []string{"the pod uses the network of the machine"})
}

// unlessPrivileged returns an error if something was found, and the user may not create privileged pods.
func unlessPrivileged(u User, p Policy, verb string, o kinds.Object, found []string) error {
	if len(found) == 0 {
		return nil
	}
	if allowed, _ := p.Allows(Attributes{User: u, Verb: "create", Resource: "pods", Subresource: privileged, Namespace: o.GetNamespace()}); allowed {
		return nil
	}
	resource := resourceOf(o)
	return forbidden(resource.Group, resource.Resource, o.GetName(), fmt.Sprintf(
		"%s; User %q cannot %s it: needs the role admin, or create:pods/privileged in apiServer.rules", strings.Join(found, "; "), u.Name, verb,
	))
}

// resourceOf returns the resource of an object, whose kind need not be set in it.
func resourceOf(o kinds.Object) schema.GroupResource {
	if k := kinds.ByKind(o.GetObjectKind().GroupVersionKind()); k != nil {
		return k.Resource().GroupResource()
	}
	all, _, _ := kinds.Scheme().ObjectKinds(o)
	for _, gvk := range all {
		if k := kinds.ByKind(gvk); k != nil {
			return k.Resource().GroupResource()
		}
	}
	return schema.GroupResource{}
}

// precedence returns how an object would take precedence over pods and claims of others.
func precedence(o kinds.Object) (found []string) {
	switch o := o.(type) {
	case *schedulingv1.PriorityClass:
		if o.GlobalDefault {
			return []string{"the class would be the default of all pods"}
		}
	case *storagev1.StorageClass:
		if (&manifests.StorageClass{ObjectMeta: o.ObjectMeta}).IsDefault() {
			return []string{"the class would be the default of all claims"}
		}
	}
	meta, spec := podOf(o)
	if spec == nil {
		return nil
	}
	for _, c := range policy.Critical(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: meta.Annotations}, Spec: *spec}) {
		found = append(found, fmt.Sprintf("%s: the pod would be %s", c.Path, c.Text))
	}
	return found
}

// violations returns the violations of baseline in an object.
func violations(o kinds.Object) []string {
	switch o := o.(type) {
	case *corev1.Pod:
		return policy.Forbidden(baseline, &o.ObjectMeta, &o.Spec)
	case *appsv1.Deployment:
		return template(&o.Spec.Template)
	case *appsv1.StatefulSet:
		return template(&o.Spec.Template)
	case *appsv1.DaemonSet:
		return template(&o.Spec.Template)
	case *appsv1.ReplicaSet:
		return template(&o.Spec.Template)
	case *batchv1.Job:
		return template(&o.Spec.Template)
	case *batchv1.CronJob:
		return template(&o.Spec.JobTemplate.Spec.Template)
	case *corev1.PersistentVolume:
		if o.Spec.HostPath != nil || o.Spec.Local != nil {
			return []string{"hostPath and local volumes expose directories of the machine"}
		}
		if found := policy.HostOptions(o); found != "" {
			return []string{found}
		}
	case *corev1.Service:
		return outside(&o.Spec)
	}
	return nil
}

// outside returns which connections a Service would take that are not meant for it: those of the machine and its pods to any address, or to
// the ports of the machine, on which its own processes may listen.
func outside(s *corev1.ServiceSpec) (found []string) {
	if len(s.ExternalIPs) > 0 {
		found = append(found, "externalIPs take the connections of the machine and its pods to these addresses")
	}
	if s.Type == corev1.ServiceTypeLoadBalancer && s.LoadBalancerClass == nil {
		found = append(found, "type LoadBalancer opens ports of the machine, like hostPort; use NodePort")
	}
	return found
}

func template(t *corev1.PodTemplateSpec) []string {
	meta := metav1.ObjectMeta{Annotations: t.Annotations, Labels: t.Labels}
	return policy.Forbidden(baseline, &meta, &t.Spec)
}
