package localclient

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AddEphemeral adds an ephemeral container to the pod with this uid, and returns the pod.
func AddEphemeral(ctx context.Context, c *Client, namespace, name string, uid types.UID, e *corev1.EphemeralContainer) (*corev1.Pod, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"spec":     map[string]any{"ephemeralContainers": []*corev1.EphemeralContainer{e}},
	})
	if err != nil {
		return nil, err
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name) + "/ephemeralcontainers"
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, "http://monopod"+path, bytes.NewReader(patch))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", string(types.StrategicMergePatchType))
	body, err := c.do(req, wholeAnswer)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	pod := &corev1.Pod{}
	return pod, c.decode(path, body, pod)
}
