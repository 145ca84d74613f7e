package authority

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/jsonlimit"
	"monopod/node/localapi"
)

// Limits of a request for a kubeconfig.
const (
	maxRequest = 64 << 10
	maxValues  = 1000
)

// Handler issues kubeconfigs to users who may do everything. address is the address of the API, empty if it is disabled; node is the
// cluster name in kubeconfigs.
func Handler(a *Authority, address, node string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := issue(a, address, node, w, r)
		code, body := http.StatusOK, any(answer)
		if err != nil {
			var status apierrors.APIStatus
			if !errors.As(err, &status) {
				status = apierrors.NewInternalError(err)
			}
			s := status.Status()
			s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			code, body = int(s.Code), s
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) // errors only mean that the client is gone
	})
}

func issue(a *Authority, address, node string, w http.ResponseWriter, r *http.Request) (answer localapi.Kubeconfig, err error) {
	if address == "" {
		return answer, apierrors.NewBadRequest("the Kubernetes API is disabled; write apiServer: {address: 127.0.0.1:6443} into the configuration and restart monopod")
	}
	var q localapi.KubeconfigRequest
	dec := json.NewDecoder(jsonlimit.NewReader(http.MaxBytesReader(w, r.Body, maxRequest), maxValues))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return answer, apierrors.NewBadRequest(err.Error())
	}
	c := Client{User: q.User, Groups: q.Groups, Namespace: q.Namespace, Server: q.Server, Cluster: node}
	if c.Server == "" {
		c.Server = ServerURL(address)
	}
	if err := c.Check(); err != nil {
		return answer, apierrors.NewBadRequest(err.Error())
	}
	text, err := a.Kubeconfig(c)
	answer.Kubeconfig = string(text)
	return answer, err
}

// ServerURL returns the URL for clients on this machine of an API that listens on address.
func ServerURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1" // an IPv6 socket may not accept IPv4
		}
	}
	return "https://" + net.JoinHostPort(host, port)
}
