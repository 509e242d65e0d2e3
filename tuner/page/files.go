package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/trimtab/trimtab/tuner/account"
)

//trimtab:table the page's own files, as the compiler read them
//go:embed assets
var assets embed.FS

// file is one embedded file, compressed once.
type file struct{ contentType, tag, plain, zipped string }

// files answers with embedded files; "/" is index.html.
type files map[string]file

func newFiles() (files, error) {
	out := files{}
	err := fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		at := strings.TrimPrefix(name, "assets")
		if at == "/index.html" {
			at = "/"
		}
		return out.add(at, contentType(name), content)
	})
	if err == nil {
		err = out.add("/terms.js", contentType("terms.js"), terms())
	}
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	return out, nil
}

func (f files) add(at, contentType string, content []byte) error {
	zipped, err := zip(gzip.BestCompression, func(to io.Writer) { _, _ = to.Write(content) })
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	f[at] = file{contentType, fmt.Sprintf("%q", fmt.Sprintf("%x", sum[:12])), string(content), string(zipped)}
	return nil
}

// terms is the module that says what a report's columns mean, in the words of `trimtab report`.
func terms() []byte {
	columns, _ := json.Marshal(account.Columns()) // texts alone always can
	lent, _ := json.Marshal(account.LentColumn())
	return fmt.Appendf(nil, "export const terms = %s;\nexport const lent = %s;\n", columns, lent)
}

// contentType does not ask the host's tables, which differ.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one, ok := f[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", one.contentType)
	sendZipped(w, r, http.StatusOK, one.tag, []byte(one.zipped), func() ([]byte, error) { return []byte(one.plain), nil })
}

// answerLevel has a list of 1,000 containers in a third of the time that the default level takes,
// an eighth larger.
const answerLevel = 2

// zip compresses what write writes. Errors of writing come with Close.
func zip(level int, write func(io.Writer)) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, level)
	if err != nil {
		return nil, err
	}
	write(z)
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unzip(zipped []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// sendZipped answers from compressed bytes: as they are, with what plain gives for who takes
// no gzip, or with 304 for who has them.
func sendZipped(w http.ResponseWriter, r *http.Request, status int, tag string, zipped []byte, plain func() ([]byte, error)) {
	h := w.Header()
	h.Set("Cache-Control", "private, no-cache") // kept, and asked for again each time
	h.Set("Vary", "Accept-Encoding")
	if status == http.StatusOK {
		h.Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	body := zipped
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
	} else {
		var err error
		if body, err = plain(); err != nil {
			h.Del("ETag")
			busy(w)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a viewer that went away needs no answer
}
