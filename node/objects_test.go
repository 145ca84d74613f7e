package node

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/localapi"
)

func TestDocumentsHaveOnlyWhatTheUserMaySee(t *testing.T) {
	objects := []metav1.Object{
		&corev1.Secret{TypeMeta: metav1.TypeMeta{Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}},
		&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}},
	}
	s := NewServer(Config{Objects: func() []metav1.Object { return objects }, Visible: func(r *http.Request, o metav1.Object) bool {
		_, secret := o.(*corev1.Secret)
		return !secret || r.Header.Get("X-User") == "root"
	}})
	mux := http.NewServeMux()
	s.objectRoutes(mux)
	for user, secret := range map[string]bool{"root": true, "local": false} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, localapi.Self("documents"), nil)
		r.Header.Set("X-User", user)
		mux.ServeHTTP(w, r)
		if body := w.Body.String(); strings.Contains(body, `"db"`) != secret || !strings.Contains(body, `"settings"`) {
			t.Errorf("%s sees %s", user, body)
		}
	}
}
