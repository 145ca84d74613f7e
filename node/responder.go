package node

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// responder writes answers: a JSON document, or a Status for an error.
type responder struct{ log *slog.Logger }

func (r responder) json(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		r.fail(w, apierrors.NewInternalError(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	r.write(w, append(b, '\n'))
}

// fail answers with a Status object, as the API server does.
func (r responder) fail(w http.ResponseWriter, e *apierrors.StatusError) {
	status := e.ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	b, err := json.Marshal(status)
	if err != nil {
		r.log.Error("encode status", "err", err)
	}
	b = append(b, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b))) // also where the handler goes on
	w.WriteHeader(int(status.Code))
	r.write(w, b)
}

// write sends the body. A client that has gone away is no error of ours.
func (r responder) write(w http.ResponseWriter, b []byte) {
	if _, err := w.Write(b); err != nil {
		r.log.Debug("answer a request", "err", err)
	}
}
