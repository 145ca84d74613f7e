// Package spacestest is test support: documents and pods of several sources.
//
// Only tests import it.
package spacestest

import (
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
)

// Spaces has two local sources; all others are spaces of their own, also the API server.
func Spaces(sharing map[string][]string) *manifests.Spaces {
	return &manifests.Spaces{Local: []string{"file", "applied", "apiserver"}, Sharing: sharing}
}

// Content decodes documents of a source.
func Content(tb testing.TB, source, text string) *manifests.Content {
	tb.Helper()
	c, err := decode.All("/"+source+".yaml", []byte(text), decode.Options{Source: source})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Pod returns a pod of a source that refers to all that Everything returns.
func Pod(tb testing.TB, source string) *manifests.Pod {
	tb.Helper()
	return Content(tb, source, pod).Pods[0]
}

// Everything returns an object of each kind that pods refer to. Those of all sources have the same names; the content names the source.
func Everything(tb testing.TB, source string) []*manifests.Object {
	tb.Helper()
	return Content(tb, source, strings.ReplaceAll(everything, "SOURCE", source)).Objects
}

const (
	everything = `---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {by: SOURCE}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {by: SOURCE}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], volumeName: v, resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: k}, provisioner: x/y}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: k}, handler: h}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: k}, value: 7}
`
	pod = `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  runtimeClassName: k
  priorityClassName: k
  imagePullSecrets: [{name: s}]
  volumes: [{name: m, configMap: {name: m}}, {name: c, persistentVolumeClaim: {claimName: c}}]
  containers: [{name: c, image: i}]
`
)
