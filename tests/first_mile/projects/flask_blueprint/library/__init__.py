from flask import Flask


def create_app() -> Flask:
    from library.chat import chat

    app = Flask(__name__)
    app.config["MODEL"] = "gpt-5-mini"
    app.register_blueprint(chat, url_prefix="/api")
    return app
