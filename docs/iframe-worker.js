// Search where the site is opened as a file: browsers start no worker there, so the worker runs in a hidden frame.
// The theme's plugin `offline` writes the index as a script, and loads a polyfill of this name from another server
// unless there is one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.frame = frame.contentWindow
      this.frame.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.frame.importScripts = (...urls) => Promise.all(urls.map(each => this.load(each)))
      this.ready = this.load(url)
    }

    load(url) {
      const script = this.frame.document.createElement("script")
      script.src = url
      const done = new Promise((resolve, reject) => Object.assign(script, { onload: resolve, onerror: reject }))
      this.frame.document.body.append(script)
      return done
    }

    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.frameElement.remove()
    }
  }
}
