package manifests

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
)

// kindRole says what becomes of documents of a kind.
type kindRole int

const (
	// kindObject: pods refer to them.
	kindObject kindRole = iota + 1
	// kindWorkload: they make pods.
	kindWorkload
)

// kindInfo is what is known of a kind of Kubernetes.
type kindInfo struct {
	// version is the apiVersion that is read.
	version string
	role    kindRole
	// make returns an empty one.
	make func() metav1.Object
	// cluster: it has no namespace.
	cluster bool
}

// kinds are the kinds that are read besides Pods.
func kinds() map[string]kindInfo {
	return map[string]kindInfo{
		"ConfigMap":             {version: "v1", role: kindObject, make: func() metav1.Object { return &corev1.ConfigMap{} }},
		"Secret":                {version: "v1", role: kindObject, make: func() metav1.Object { return &corev1.Secret{} }},
		"PersistentVolume":      {version: "v1", role: kindObject, make: func() metav1.Object { return &corev1.PersistentVolume{} }, cluster: true},
		"PersistentVolumeClaim": {version: "v1", role: kindObject, make: func() metav1.Object { return &corev1.PersistentVolumeClaim{} }},
		"StorageClass":          {version: "storage.k8s.io/v1", role: kindObject, make: func() metav1.Object { return &StorageClass{} }, cluster: true},
		"RuntimeClass":          {version: "node.k8s.io/v1", role: kindObject, make: func() metav1.Object { return &nodev1.RuntimeClass{} }, cluster: true},
		"PriorityClass":         {version: "scheduling.k8s.io/v1", role: kindObject, make: func() metav1.Object { return &schedulingv1.PriorityClass{} }, cluster: true},
		"Service":               {version: "v1", role: kindObject, make: func() metav1.Object { return &corev1.Service{} }},
		"Deployment":            {version: "apps/v1", role: kindWorkload, make: func() metav1.Object { return &appsv1.Deployment{} }},
		"DaemonSet":             {version: "apps/v1", role: kindWorkload, make: func() metav1.Object { return &appsv1.DaemonSet{} }},
		"ReplicaSet":            {version: "apps/v1", role: kindWorkload, make: func() metav1.Object { return &appsv1.ReplicaSet{} }},
		"ReplicationController": {version: "v1", role: kindWorkload, make: func() metav1.Object { return &corev1.ReplicationController{} }},
		"StatefulSet":           {version: "apps/v1", role: kindWorkload, make: func() metav1.Object { return &appsv1.StatefulSet{} }},
		"Job":                   {version: "batch/v1", role: kindWorkload, make: func() metav1.Object { return &batchv1.Job{} }},
		"CronJob":               {version: "batch/v1", role: kindWorkload, make: func() metav1.Object { return &batchv1.CronJob{} }},
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

// whyIgnored says why a kind of Kubernetes is ignored, or what to write instead.
func whyIgnored(kind, group string) string {
	switch kind {
	case "Namespace":
		return "namespaces need not exist"
	case "NetworkPolicy":
		return "nothing here filters the traffic of pods"
	case "PodTemplate":
		return "write a Pod or a Deployment to run it"
	case "ServiceAccount":
		return "there is no API server that a pod could log in to"
	case "Ingress", "IngressClass":
		return "nothing here routes HTTP to pods; publish a port with hostPort"
	case "HorizontalPodAutoscaler":
		return "the number of replicas is what is written"
	case "CustomResourceDefinition":
		return noController
	}
	switch group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io":
		return "there is no API server that it could be about"
	}
	return "it means nothing on one machine"
}

const noController = "no controller for it runs here"

// kindTable is what can be looked up by kind.
type kindTable struct {
	byKind map[string]kindInfo
	// ignored are the groups of Kubernetes with their kinds that mean nothing here.
	ignored map[string][]string
	// names are all kinds that can be meant by a misspelled one.
	names []string
}

var knownKinds = sync.OnceValue(func() *kindTable { //nolint:gochecknoglobals // a constant that Go cannot write as one
	t := &kindTable{byKind: kinds(), ignored: ignoredKinds(), names: []string{"Pod", "PodList", "List"}}
	t.names = slices.AppendSeq(t.names, maps.Keys(t.byKind))
	for _, list := range t.ignored {
		t.names = append(t.names, list...)
	}
	slices.Sort(t.names)
	return t
})

// listElement returns the type that elements of a list need not name; ok is false for what is no list. Those of a List name theirs.
func listElement(kind, version string) (element metav1.TypeMeta, ok bool) {
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
	if info, known := knownKinds().byKind[of]; known {
		return element, info.version == version
	}
	return element, slices.Contains(knownKinds().ignored[groupOf(version)], of)
}

// groupOf returns the group of an apiVersion, empty for v1.
func groupOf(version string) string {
	group, _, found := strings.Cut(version, "/")
	if !found {
		return ""
	}
	return group
}

// ignores returns a line about a document that means nothing here, and whether it is one. Kinds of other makers (custom
// resources) are told by the dot in their group.
func (t *kindTable) ignores(kind, version string) (note string, ok bool) {
	group := groupOf(version)
	if group == "kustomize.config.k8s.io" { // what it says about other files would be dropped silently
		return "", false
	}
	if list, known := t.ignored[group]; known {
		if !slices.Contains(list, kind) {
			return "", false
		}
		return whyIgnored(kind, group), true
	}
	return noController, strings.Contains(group, ".") && kind != ""
}

// refuseKind says why an object of no known kind is not accepted.
func refuseKind(m map[string]any, it item) problem {
	kind, hasKind := m["kind"].(string)
	version, hasVersion := m["apiVersion"].(string)
	switch {
	case m["kind"] != nil && !hasKind:
		return problem{path: it.path("kind"), msg: "expected a string, found " + describe(m["kind"])}
	case m["apiVersion"] != nil && !hasVersion:
		return problem{path: it.path("apiVersion"), msg: "expected a string, found " + describe(m["apiVersion"]), hint: "write apiVersion: v1"}
	case kind == "":
		return missingKind(m, it)
	case otherTool(m, it.file) != "":
		return problem{path: it.path("kind"), msg: "a " + kind + " is no manifest", hint: otherTool(m, it.file), atKey: true}
	case kind == "Pod" || kind == "PodList" || kind == "List":
		return wrongVersion(kind, version, "v1", it)
	}
	if info, ok := knownKinds().byKind[kind]; ok {
		return wrongVersion(kind, version, info.version, it)
	}
	if of, isList := strings.CutSuffix(kind, "List"); isList && knownKinds().byKind[of].version != "" {
		return wrongVersion(kind, version, knownKinds().byKind[of].version, it)
	}
	p := problem{path: it.prefix}
	p.line, p.column = it.position(problem{path: it.path("kind")})
	p.msg = fmt.Sprintf("there is no kind %s in apiVersion %s", kind, version)
	if version == "" {
		p.msg = fmt.Sprintf("kind %s without an apiVersion", kind)
	}
	p.hint = "remove this document from the file"
	if guess := nearest(kind, knownKinds().names); guess != "" && guess != kind {
		p.hint = fmt.Sprintf("did you mean %q?", guess)
	}
	return p
}

func missingKind(m map[string]any, it item) problem {
	p := problem{path: it.path("kind"), msg: "the kind is missing", hint: "write apiVersion: v1 and kind: Pod"}
	if guess := nearest("kind", sortedKeys(m)); guess != "" && m["kind"] == nil {
		return problem{path: it.path(guess), msg: "unknown field, and the kind is missing", hint: `did you mean "kind"?`, atKey: true}
	}
	if hint := otherTool(m, it.file); hint != "" {
		p.hint = hint
	}
	return p
}

func wrongVersion(kind, version, want string, it item) problem {
	p := problem{path: it.path("apiVersion"), hint: "write apiVersion: " + want}
	switch version {
	case "":
		p.msg = "the apiVersion is missing"
	case "v1beta1", "v1beta2", "v1beta3":
		p.msg = fmt.Sprintf("apiVersion %s has been gone since Kubernetes 1.0, and its fields differ from those of v1", version)
	default:
		p.msg = fmt.Sprintf("there is no %s in apiVersion %s", kind, version)
	}
	return p
}
