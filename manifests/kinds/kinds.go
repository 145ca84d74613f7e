// Package kinds is the catalog of Kubernetes kinds: those that are read, those that are ignored and why, and those that do not exist.
//
// It must not decode objects.
package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/manifests/explain"
)

// Role is the purpose of documents of a kind.
type Role int

const (
	// Referenced kinds are those that pods refer to.
	Referenced Role = iota + 1
	// Workload kinds make pods.
	Workload
)

// Info describes a supported kind.
type Info struct {
	// Version is the apiVersion that is read.
	Version string
	Role    Role
	// New returns an empty one.
	New func() metav1.Object
	// Cluster: it has no namespace.
	Cluster bool
}

// readKinds are the kinds that are read besides Pods.
func readKinds() map[string]Info {
	return map[string]Info{
		"ConfigMap":             {Version: "v1", Role: Referenced, New: func() metav1.Object { return &corev1.ConfigMap{} }},
		"Secret":                {Version: "v1", Role: Referenced, New: func() metav1.Object { return &corev1.Secret{} }},
		"PersistentVolume":      {Version: "v1", Role: Referenced, New: func() metav1.Object { return &corev1.PersistentVolume{} }, Cluster: true},
		"PersistentVolumeClaim": {Version: "v1", Role: Referenced, New: func() metav1.Object { return &corev1.PersistentVolumeClaim{} }},
		"StorageClass":          {Version: "storage.k8s.io/v1", Role: Referenced, New: func() metav1.Object { return &manifests.StorageClass{} }, Cluster: true},
		"RuntimeClass":          {Version: "node.k8s.io/v1", Role: Referenced, New: func() metav1.Object { return &nodev1.RuntimeClass{} }, Cluster: true},
		"PriorityClass":         {Version: "scheduling.k8s.io/v1", Role: Referenced, New: func() metav1.Object { return &schedulingv1.PriorityClass{} }, Cluster: true},
		"Service":               {Version: "v1", Role: Referenced, New: func() metav1.Object { return &corev1.Service{} }},
		"Deployment":            {Version: "apps/v1", Role: Workload, New: func() metav1.Object { return &appsv1.Deployment{} }},
		"DaemonSet":             {Version: "apps/v1", Role: Workload, New: func() metav1.Object { return &appsv1.DaemonSet{} }},
		"ReplicaSet":            {Version: "apps/v1", Role: Workload, New: func() metav1.Object { return &appsv1.ReplicaSet{} }},
		"ReplicationController": {Version: "v1", Role: Workload, New: func() metav1.Object { return &corev1.ReplicationController{} }},
		"StatefulSet":           {Version: "apps/v1", Role: Workload, New: func() metav1.Object { return &appsv1.StatefulSet{} }},
		"Job":                   {Version: "batch/v1", Role: Workload, New: func() metav1.Object { return &batchv1.Job{} }},
		"CronJob":               {Version: "batch/v1", Role: Workload, New: func() metav1.Object { return &batchv1.CronJob{} }},
	}
}

// ignoredKinds are the kinds of Kubernetes that mean nothing on one machine, by API group.
func ignoredKinds() map[string][]string {
	return map[string][]string{
		"": {
			"Binding", "ComponentStatus", "Endpoints", "Event", "LimitRange", "Namespace", "Node", "PodTemplate",
			"ResourceQuota", "ServiceAccount",
		},
		"admissionregistration.k8s.io": {
			"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
		},
		"apiextensions.k8s.io":         {"CustomResourceDefinition"},
		"apiregistration.k8s.io":       {"APIService"},
		"apps":                         {"ControllerRevision"},
		"authentication.k8s.io":        {"SelfSubjectReview", "TokenRequest", "TokenReview"},
		"authorization.k8s.io":         {"LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"},
		"autoscaling":                  {"HorizontalPodAutoscaler", "Scale"},
		"batch":                        {},
		"certificates.k8s.io":          {"CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"},
		"coordination.k8s.io":          {"Lease", "LeaseCandidate"},
		"discovery.k8s.io":             {"EndpointSlice"},
		"events.k8s.io":                {"Event"},
		"extensions":                   {"Ingress", "NetworkPolicy", "PodSecurityPolicy"},
		"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
		"internal.apiserver.k8s.io":    {"StorageVersion"},
		"networking.k8s.io":            {"IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"},
		"node.k8s.io":                  {},
		"policy":                       {"Eviction", "PodDisruptionBudget", "PodSecurityPolicy"},
		"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
		"resource.k8s.io":              {"DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"},
		"scheduling.k8s.io":            {"PodGroup", "Workload"},
		"storage.k8s.io":               {"CSIDriver", "CSINode", "CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"},
		"storagemigration.k8s.io":      {"StorageVersionMigration"},
	}
}

// Inert reports whether a kind means nothing in manifests, but can be stored without effect by the Kubernetes API: see apiServer.inertKinds.
func Inert(kind string) bool {
	switch kind {
	case "ClusterRole", "ClusterRoleBinding", "HorizontalPodAutoscaler", "Ingress", "IngressClass", "LimitRange", "NetworkPolicy",
		"PodDisruptionBudget", "ResourceQuota", "Role", "RoleBinding":
		return true
	}
	return false
}

// whyIgnored returns why a kind of Kubernetes is ignored, or what to write instead.
func whyIgnored(kind, group string) string {
	switch kind {
	case "Namespace":
		return "namespaces need not exist"
	case "NetworkPolicy":
		return "monopod does not filter the traffic of pods"
	case "PodTemplate":
		return "write a Pod or a Deployment to run it"
	case "ServiceAccount":
		return "there is no API server that a pod could authenticate to"
	case "Ingress", "IngressClass":
		return "monopod does not route HTTP to pods; publish a port with hostPort"
	case "HorizontalPodAutoscaler":
		return "the number of replicas is not scaled automatically"
	case "CustomResourceDefinition":
		return noController
	}
	switch group {
	case "rbac.authorization.k8s.io":
		return "apiServer.rules grants permissions"
	case "admissionregistration.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io":
		return "it configures an API server, and there is none"
	}
	return "it has no effect on a single machine"
}

// Matters reports whether a document of a kind that is ignored would change in a cluster what pods do or who reaches them. Others, such as a
// Namespace or a Role, are there for the API server only.
func Matters(kind, version string) bool {
	switch group := GroupOf(version); group {
	case "":
		return kind == "Endpoints" || kind == "LimitRange" || kind == "ResourceQuota"
	case "admissionregistration.k8s.io", "autoscaling", "discovery.k8s.io", "extensions", "networking.k8s.io", "policy", "resource.k8s.io":
		return true
	default:
		_, ours := Known().ignored[group]
		return !ours
	}
}

const noController = "no controller for it runs here"

// kindTable is what can be looked up by kind.
type kindTable struct {
	ByKind map[string]Info
	// ignored are the groups of Kubernetes with their kinds that mean nothing here.
	ignored map[string][]string
	// Names are all kinds that can be meant by a misspelled one.
	Names []string
}

// Known is the catalog. It is built once.
var Known = sync.OnceValue(func() *kindTable {
	t := &kindTable{ByKind: readKinds(), ignored: ignoredKinds(), Names: []string{"Pod", "PodList", "List"}}
	t.Names = slices.AppendSeq(t.Names, maps.Keys(t.ByKind))
	for _, list := range t.ignored {
		t.Names = append(t.Names, list...)
	}
	slices.Sort(t.Names)
	return t
})

// ListElement returns the type that elements of a list need not name; ok is false for what is no list. Those of a List name theirs.
func ListElement(kind, version string) (element metav1.TypeMeta, ok bool) {
	of, isList := strings.CutSuffix(kind, "List")
	switch {
	case !isList:
		return element, false
	case of == "":
		return element, version == "v1"
	case of == "Pod":
		return metav1.TypeMeta{Kind: of, APIVersion: version}, version == "v1"
	}
	element = metav1.TypeMeta{Kind: of, APIVersion: version}
	if info, known := Known().ByKind[of]; known {
		return element, info.Version == version
	}
	return element, slices.Contains(Known().ignored[GroupOf(version)], of)
}

// GroupOf returns the group of an apiVersion, empty for v1.
func GroupOf(version string) string {
	group, _, found := strings.Cut(version, "/")
	if !found {
		return ""
	}
	return group
}

// Ignores reports whether documents of a kind are valid but have no effect here, with a note for the user. A dot in the group marks custom
// resources.
func (t *kindTable) Ignores(kind, version string) (note string, ok bool) {
	group := GroupOf(version)
	if group == "kustomize.config.k8s.io" { // what it says about other files would be dropped silently
		return "", false
	}
	if list, known := t.ignored[group]; known {
		if !slices.Contains(list, kind) {
			return "", false
		}
		note := whyIgnored(kind, group)
		if Inert(kind) {
			note += "; the Kubernetes API can store it without effect: apiServer.inertKinds"
		}
		return note, true
	}
	return noController, strings.Contains(group, ".") && kind != ""
}

// Refuse returns why an object of an unknown kind is refused.
func Refuse(m map[string]any, it document.Item) document.Problem {
	kind, hasKind := m["kind"].(string)
	version, hasVersion := m["apiVersion"].(string)
	switch {
	case m["kind"] != nil && !hasKind:
		return document.Problem{Path: it.Path("kind"), Msg: "expected a string, found " + explain.Describe(m["kind"])}
	case m["apiVersion"] != nil && !hasVersion:
		return document.Problem{Path: it.Path("apiVersion"), Msg: "expected a string, found " + explain.Describe(m["apiVersion"]), Hint: "write apiVersion: v1"}
	case kind == "":
		return missingKind(m, it)
	case otherTool(m, it.File) != "":
		return document.Problem{Path: it.Path("kind"), Msg: "a " + kind + " is not a manifest", Hint: otherTool(m, it.File), AtKey: true}
	case kind == "Pod" || kind == "PodList" || kind == "List":
		return wrongVersion(kind, version, "v1", it)
	}
	if info, ok := Known().ByKind[kind]; ok {
		return wrongVersion(kind, version, info.Version, it)
	}
	if of, isList := strings.CutSuffix(kind, "List"); isList && Known().ByKind[of].Version != "" {
		return wrongVersion(kind, version, Known().ByKind[of].Version, it)
	}
	p := document.Problem{Path: it.Prefix}
	p.Line, p.Column = it.Position(document.Problem{Path: it.Path("kind")})
	p.Msg = fmt.Sprintf("there is no kind %s in apiVersion %s", kind, version)
	if version == "" {
		p.Msg = fmt.Sprintf("kind %s without an apiVersion", kind)
	}
	p.Hint = "remove this document from the file"
	if guess := explain.Nearest(kind, Known().Names); guess != "" && guess != kind {
		p.Hint = fmt.Sprintf("did you mean %q?", guess)
	}
	return p
}

func missingKind(m map[string]any, it document.Item) document.Problem {
	p := document.Problem{Path: it.Path("kind"), Msg: "the kind is missing", Hint: "write apiVersion: v1 and kind: Pod"}
	if guess := explain.Nearest("kind", explain.SortedKeys(m)); guess != "" && m["kind"] == nil {
		return document.Problem{Path: it.Path(guess), Msg: "unknown field, and the kind is missing", Hint: `did you mean "kind"?`, AtKey: true}
	}
	if hint := otherTool(m, it.File); hint != "" {
		p.Hint = hint
	}
	return p
}

func wrongVersion(kind, version, want string, it document.Item) document.Problem {
	p := document.Problem{Path: it.Path("apiVersion"), Hint: "write apiVersion: " + want}
	switch version {
	case "":
		p.Msg = "the apiVersion is missing"
	case "v1beta1", "v1beta2", "v1beta3":
		p.Msg = fmt.Sprintf("apiVersion %s was removed in Kubernetes 1.0, and its fields differ from those of v1", version)
	default:
		p.Msg = fmt.Sprintf("there is no %s in apiVersion %s", kind, version)
	}
	return p
}

// kindShortNames are those of kubectl.
func kindShortNames() map[string]string {
	return map[string]string{
		"po": "Pod", "cm": "ConfigMap", "pv": "PersistentVolume", "pvc": "PersistentVolumeClaim", "sc": "StorageClass", "svc": "Service",
		"rc": "ReplicationController", "deploy": "Deployment", "ds": "DaemonSet", "rs": "ReplicaSet", "sts": "StatefulSet", "cj": "CronJob",
	}
}

// Find returns the kind that a word of a command line means: its name in any case, in the plural or short. namespaced
// is false for cluster-wide kinds, ok for words that mean none.
func Find(word string) (kind string, namespaced, ok bool) {
	word = strings.ToLower(word)
	if kind, ok := kindShortNames()[word]; ok {
		word = strings.ToLower(kind)
	}
	for _, kind := range All() {
		name := strings.ToLower(kind)
		if word == name || word == name+"s" || word == name+"es" {
			return kind, !Known().ByKind[kind].Cluster, true
		}
	}
	return "", false, false
}

// All are those that can be written, sorted.
func All() []string {
	all := slices.Collect(maps.Keys(Known().ByKind))
	all = append(all, "Pod")
	slices.Sort(all)
	return all
}
