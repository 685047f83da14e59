// Runs a FluentServer with the options in argv[2] (JSON) and prints its port,
// then a line of JSON for each event.
const fs = require("fs");
const { FluentServer } = require("@fluent-org/logger");
const o = JSON.parse(process.argv[2]);
if (o.tlsOptions) {
  for (const k of ["cert", "key", "ca"]) if (o.tlsOptions[k]) o.tlsOptions[k] = fs.readFileSync(o.tlsOptions[k]);
}
class Server extends FluentServer {
  onEntry(tag, time, record) {
    console.log(JSON.stringify({ tag, record }));
  }
}
const s = new Server({ keepalive: true, listenOptions: { host: "127.0.0.1", port: 0 }, ...o });
s.listen().then(() => console.log(JSON.stringify({ port: s.port })));
process.stdin.on("end", () => process.exit(0)).resume();
