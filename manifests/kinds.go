package manifests

import (
	"fmt"
	"slices"
)

// refuseKind says why an object that is not a v1 Pod or list is not accepted.
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
	case kind == "Pod" || kind == "PodList" || kind == "List":
		return wrongVersion(kind, version, it)
	}
	p := problem{path: it.prefix, msg: fmt.Sprintf("kind %s: monopod runs Pods", kind)}
	p.line, p.column = it.position(problem{path: it.path("kind")})
	if guess := nearest(kind, []string{"Pod", "PodList", "List"}); guess != "" && kind != "Job" {
		p.msg = fmt.Sprintf("there is no kind %s", kind)
		p.hint = fmt.Sprintf("did you mean %q?", guess)
		return p
	}
	switch {
	case slices.Contains([]string{"ConfigMap", "Secret", "PersistentVolumeClaim", "PersistentVolume", "RuntimeClass"}, kind):
		p.msg = fmt.Sprintf("kind %s is planned for release 0.2", kind)
		p.hint = "until then put what the pod needs into environment variables or hostPath files, and remove this document"
	case slices.Contains([]string{"Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "Job", "CronJob"}, kind):
		p.msg = fmt.Sprintf("kind %s: monopod runs Pods; running the pod template of a %s is planned for release 0.2", kind, kind)
		p.hint = "write spec.template as a Pod of its own: apiVersion v1, kind Pod, with a metadata.name"
	case kind == "Service":
		p.msg = "kind Service: monopod runs Pods; names for Services are planned for release 0.2"
		p.hint = "use hostPort or hostNetwork to reach the pod, and remove this document"
	case kind == "ReplicationController" || kind == "PodTemplate":
		p.hint = "write its template as a Pod of its own"
	default:
		p.hint = "remove this document from the file"
	}
	return p
}

func missingKind(m map[string]any, it item) problem {
	p := problem{path: it.path("kind"), msg: "the kind is missing", hint: "write apiVersion: v1 and kind: Pod"}
	if guess := nearest("kind", sortedKeys(m)); guess != "" && m["kind"] == nil {
		return problem{path: it.path(guess), msg: "unknown field, and the kind is missing", hint: `did you mean "kind"?`}
	}
	return p
}

func wrongVersion(kind, version string, it item) problem {
	p := problem{path: it.path("apiVersion"), hint: "write apiVersion: v1"}
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
